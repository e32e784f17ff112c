"""End a run as Ctrl-C does when this process is told to end: the prompt goes back, a server of ours stops."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_TOLD_TO_END = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP too, except those that are ignored (`nohup`)."""
    before = {number: signal.getsignal(number) for number in _TOLD_TO_END}
    heard = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])


@contextmanager
def held_back() -> Iterator[None]:
    """Let a signal that ends the run wait for the end of the block: what is started in it is known by then."""
    told: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _frame: told.append(number))
        for number in (signal.SIGINT, *_TOLD_TO_END)
        if callable(signal.getsignal(number))
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if told:
        raise KeyboardInterrupt


@contextmanager
def cancelled_by_signals() -> Iterator[None]:
    """Cancel the current task on these signals, as asyncio does on Ctrl-C: it can still clean up."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    heard = [number for number in _TOLD_TO_END if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
            signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
