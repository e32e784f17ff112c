"""Samples tell who held the GPU lanes since the sample before, and stay few."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.control.overview.shares import SAMPLES, TENANTS_PER_SAMPLE, ShareHistory
from comfyserverless.core.ids import TenantId

ALICE, BOB = TenantId("alice"), TenantId("bob")


def held(history: ShareHistory, number: int = 0) -> dict[str, float]:
    [sample] = history.since(number)
    return {each.tenant: pytest.approx(each.held_ratio) for each in sample.shares}


def test_stays_that_ended_and_that_go_on_count_by_their_part_of_the_sample() -> None:
    history = ShareHistory(10.0)
    history.end_stay(ALICE, 5.0, 10.5)
    history.take(12.0, [(BOB, 11.0)], 1, {})
    assert held(history) == {"alice": 0.25, "bob": 0.5}


def test_a_call_of_many_samples_holds_its_lane_in_each() -> None:
    history = ShareHistory(0.0)
    history.take(2.0, [(ALICE, 0.0)], 1, {})
    history.take(4.0, [(ALICE, 0.0)], 1, {})
    history.end_stay(ALICE, 0.0, 5.0)
    history.take(6.0, [], 1, {})
    assert [sample.shares[0].held_ratio for sample in history.since(0)] == [1.0, 1.0, 0.5]


def test_share_is_of_all_lanes() -> None:
    history = ShareHistory(0.0)
    history.take(2.0, [(ALICE, 0.0)], 4, {})
    assert held(history) == {"alice": 0.25}


def test_without_a_lane_nobody_holds_anything() -> None:
    history = ShareHistory(0.0)
    history.end_stay(ALICE, 0.0, 1.0)
    history.take(2.0, [], 0, {BOB: 1.5})
    [sample] = history.since(0)
    assert [(each.tenant, each.held_ratio, each.ahead_s) for each in sample.shares] == [
        ("bob", 0.0, 1.5),
        ("alice", 0.0, 0.0),
    ]


def test_only_newer_samples_are_told_and_old_ones_go() -> None:
    history = ShareHistory(0.0)
    for second in range(SAMPLES + 10):
        history.take(second + 1.0, [], 1, {})
    assert [sample.number for sample in history.since(SAMPLES + 7)] == [SAMPLES + 8, SAMPLES + 9, SAMPLES + 10]
    assert len(history.since(0)) == SAMPLES
    assert history.since(SAMPLES + 10) == []


def test_tenants_beyond_the_limit_are_added_up() -> None:
    history = ShareHistory(0.0)
    count = TENANTS_PER_SAMPLE + 6
    staying = [(TenantId(f"t{number}"), 0.0) for number in range(count)]
    history.take(1.0, staying, count, {})
    [sample] = history.since(0)
    assert len(sample.shares) == TENANTS_PER_SAMPLE
    assert sample.others_ratio == pytest.approx(6 / count)


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 5)), max_size=20))
def test_seconds_of_all_samples_add_up_to_the_stays(stays: list[tuple[float, float]]) -> None:
    """One lane per stay, so that nothing is clipped; samples every two seconds."""
    history = ShareHistory(0.0)
    lanes = len(stays) + 1
    for at_s in range(2, 30, 2):
        for began_s, length_s in stays:
            ended_s = began_s + length_s
            if at_s - 2 < ended_s <= at_s:
                history.end_stay(ALICE, began_s, ended_s)
        staying = [(ALICE, began_s) for began_s, length_s in stays if began_s < at_s < began_s + length_s]
        history.take(float(at_s), staying, lanes, {})
    told_s = sum(each.held_ratio for sample in history.since(0) for each in sample.shares) * 2 * lanes
    assert told_s == pytest.approx(sum(length_s for _, length_s in stays))
