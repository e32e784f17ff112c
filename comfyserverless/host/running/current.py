"""Know which call a thread or task executes, as a context variable."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from comfyserverless.host.bridge import CallInfo, InterruptProcessingException, Places


@dataclass(slots=True)
class Running:
    """One invocation that runs here. is_cancelled: asked whenever it may end."""

    info: CallInfo
    places: Places
    is_cancelled: Callable[[], bool]
    waited_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        """Raise InterruptProcessingException if it was cancelled."""
        if self.is_cancelled():
            raise InterruptProcessingException

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time of the block as nobody's service."""
        begin_s = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self.waited_s += time.perf_counter() - begin_s


@dataclass(frozen=True, slots=True)
class Call:
    """One mapped call of an invocation."""

    running: Running
    info: CallInfo


_current: ContextVar[Call | None] = ContextVar("pack_call", default=None)


def current() -> Call | None:
    """Return the call that this thread or task executes, None outside of one."""
    return _current.get()


@contextmanager
def executing(call: Call) -> Iterator[None]:
    """Make a call the current one within the block."""
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)
