"""Differences of service, shares and percentiles."""

from __future__ import annotations

import math

import pytest

from comfyserverless.sim.measures import (
    Lead,
    Service,
    bound_s,
    largest_charge_s,
    leads,
    mean,
    percentile,
    shares,
    thinned,
    widest_s,
)

SERVICES = [Service("a", 1.0, 2.0), Service("b", 2.0, 0.5), Service("c", 3.0, 9.0), Service("b", 4.0, 4.5)]


def test_lead_is_what_one_had_more_than_the_other_over_weights() -> None:
    assert leads(SERVICES, "a", "b") == [Lead(1.0, 2.0), Lead(2.0, 1.5), Lead(4.0, -3.0)]
    assert leads(SERVICES, "a", "b", {"b": 0.5}) == [Lead(1.0, 2.0), Lead(2.0, 1.0), Lead(4.0, -8.0)]


def test_widest_difference_is_over_any_interval_and_begins_even() -> None:
    assert widest_s(leads(SERVICES, "a", "b")) == 5.0
    assert widest_s([Lead(1.0, 2.0), Lead(2.0, 3.0)]) == 3.0
    assert widest_s([]) == 0.0


def test_bound_follows_from_slack_and_the_largest_charge() -> None:
    assert largest_charge_s(SERVICES) == 9.0
    assert largest_charge_s(SERVICES, {"c": 9.0}) == 4.5
    assert bound_s(SERVICES, 0.5) == 19.0


def test_shares_add_up_to_one() -> None:
    assert shares(SERVICES) == {"a": 2 / 16, "b": 5 / 16, "c": 9 / 16}
    assert shares([]) == {}


@pytest.mark.parametrize(("ratio", "value"), [(0.5, 2.0), (0.75, 3.0), (0.95, 4.0), (1.0, 4.0), (0.01, 1.0)])
def test_percentile_is_a_value_that_was_seen(ratio: float, value: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], ratio) == value


def test_nothing_has_no_mean() -> None:
    assert math.isnan(mean([]))
    assert math.isnan(percentile([], 0.5))
    assert mean([1.0, 3.0]) == 2.0


def test_thinned_course_keeps_its_peaks() -> None:
    course = [Lead(float(at), 1.0) for at in range(10)] + [Lead(10.0, -7.0)]
    assert thinned(course, 20) == course
    assert thinned(course, 3) == [Lead(0.0, 1.0), Lead(4.0, 1.0), Lead(10.0, -7.0)]
