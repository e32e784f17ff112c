"""Tell whether work grows no faster than its input, on a machine of any speed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

_TIMES = 10
_SLACK = 4.0
_TRIES = 5


def is_linear(prepare: Callable[[int], _T], work: Callable[[_T], object], size: int) -> bool:
    """Tell whether `work` takes about ten times the processor time for ten times the size.

    prepare: makes the input of a size, which is not counted. What needs the square of the time takes a hundred
    times as long, whatever else the machine does; what is linear needs to be seen so once.
    """
    for _ in range(_TRIES):
        small_s, large_s = (_processor_s(work, prepare(each)) for each in (size // _TIMES, size))
        if large_s <= _TIMES * _SLACK * small_s:
            return True
    return False


def _processor_s(work: Callable[[_T], object], given: _T) -> float:
    gc.collect()
    gc.disable()  # it looks at everything that other tests have left
    try:
        begin_s = time.thread_time()
        work(given)
        return time.thread_time() - begin_s
    finally:
        gc.enable()
