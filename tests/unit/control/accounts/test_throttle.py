"""Guessing becomes slow, for the guesser only."""

from __future__ import annotations

from comfyserverless.control.accounts.throttle import MAX_FAILURES, WINDOW_S, LoginThrottle


def test_address_waits_after_too_many_failures_in_a_window() -> None:
    throttle = LoginThrottle()
    for at in range(MAX_FAILURES):
        assert throttle.wait_s("a", float(at)) == 0.0
        throttle.note_failure("a", float(at))
    assert throttle.wait_s("a", 10.0) == WINDOW_S - 10.0
    assert throttle.wait_s("b", 10.0) == 0.0
    assert throttle.wait_s("a", WINDOW_S) == 0.0
    throttle.note_failure("a", WINDOW_S)
    assert throttle.wait_s("a", WINDOW_S) == 1.0


def test_addresses_do_not_fill_memory() -> None:
    throttle = LoginThrottle()
    for index in range(12_000):
        throttle.note_failure(str(index), 0.0)
    assert len(throttle._failures) == 10_000
