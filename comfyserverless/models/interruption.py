"""Let whoever runs a model stop it between two layers.

What is to be asked is kept for each thread and only for as long as its job runs, so an interrupt can reach no
other job: not one beside it, and not the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_jobs = threading.local()


@contextmanager
def interruptible(check: Callable[[], None]) -> Iterator[None]:
    """Have models that this thread runs within the block call `check` at each layer: to raise and end them."""
    outer = getattr(_jobs, "check", None)
    _jobs.check = check
    try:
        yield
    finally:
        _jobs.check = outer


def check_interrupt() -> None:
    """Raise what the running job's check raises, if this thread runs one."""
    check = getattr(_jobs, "check", None)
    if check is not None:
        check()
