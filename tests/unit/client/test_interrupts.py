"""Signals that end a run come when what it has started is known."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from comfyserverless.client.interrupts import ended_like_ctrl_c, held_back


@pytest.fixture
def heard() -> Iterator[None]:
    """Hear Ctrl-C, which programs in the background of a shell do not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_waits_for_the_end_of_what_is_begun(heard: None, number: signal.Signals) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), ended_like_ctrl_c():  # noqa: PT012
        with held_back():
            os.kill(os.getpid(), number)
            done.append("started")
        done.append("went on")
    assert done == ["started"]


def test_signals_are_heard_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    with held_back():
        pass
    assert signal.getsignal(signal.SIGINT) is before
