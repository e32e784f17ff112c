"""Amounts are whole nanoseconds: every sum of parts is the charge, in whatever order it is made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.control.metering.amounts import (
    AMOUNTS,
    Amounts,
    amounts_of,
    day_of,
    nanoseconds,
    summed,
    until_next_day_s,
)
from comfyserverless.core.messages import Timing

SECONDS = st.floats(0, 1e6, allow_nan=False)


@given(SECONDS, SECONDS, SECONDS, SECONDS, SECONDS)
def test_parts_of_a_stay_add_up_to_its_charge(
    load_s: float, compute_s: float, transfer_s: float, waited_s: float, lost_s: float
) -> None:
    timing = Timing(load_s, compute_s, transfer_s, waited_s)
    done = amounts_of(1.0, timing, timing.total_s())
    assert done.untimed_ns == 0
    assert done.charged_ns == pytest.approx(timing.total_s() * 1e9, rel=1e-12, abs=2)
    lost = amounts_of(1.0, Timing(), lost_s)
    assert (lost.charged_ns, lost.untimed_ns) == (nanoseconds(lost_s), nanoseconds(lost_s))


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), float("-inf"), 1e300])
def test_time_that_cannot_be_costs_nothing_and_breaks_nothing(seconds: float) -> None:
    assert nanoseconds(seconds) == 0
    assert nanoseconds(1e-9) == 1


def test_amounts_are_shown_as_calls_and_seconds() -> None:
    amounts = amounts_of(2.0, Timing(0.5, 1.0, 0.25, 0.125), 1.75)
    assert amounts.shown() == {
        "calls": 1,
        "charged_s": 1.75,
        "queued_s": 2.0,
        "load_s": 0.5,
        "compute_s": 1.0,
        "transfer_s": 0.25,
        "waited_s": 0.125,
        "untimed_s": 0.0,
    }
    assert Amounts(*amounts.values()) == amounts
    assert len(AMOUNTS) == len(amounts.values())


def test_sum_of_amounts_is_a_new_one() -> None:
    parts = [Amounts(1, 2, 3, 4, 5, 6, 7), Amounts(10, 20, 30, 40, 50, 60, 70)]
    assert summed(parts) == Amounts(11, 22, 33, 44, 55, 66, 77)
    assert parts[0] == Amounts(1, 2, 3, 4, 5, 6, 7)


@pytest.mark.parametrize(
    ("now_ms", "day", "wait_s"),
    [(0, 0, 86_400), (86_399_001, 0, 1), (86_399_999, 0, 1), (86_400_000, 1, 86_400), (86_400_001, 1, 86_400)],
)
def test_day_ends_at_midnight_utc(now_ms: int, day: int, wait_s: int) -> None:
    assert (day_of(now_ms), until_next_day_s(now_ms)) == (day, wait_s)
