"""Hold other processes still, so that what would pass by can be looked at for as long as it takes (Linux)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_WITHIN_S = 60.0


@contextmanager
def held(*pids: int) -> Iterator[None]:
    """Keep processes from running while the block lasts; they may be killed in it.

    Keep it well below two minutes: then the server takes a worker for dead.
    """
    for pid in pids:
        _send(pid, signal.SIGSTOP)
    try:
        deadline_s = time.monotonic() + _WITHIN_S
        while not all(_is_still(pid) for pid in pids):
            assert time.monotonic() < deadline_s, pids
            time.sleep(0.001)
        yield
    finally:
        for pid in pids:
            _send(pid, signal.SIGCONT)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_still(pid: int) -> bool:
    """Tell whether no thread of a process runs: they are stopped (T), or gone."""
    try:
        states = [
            (task / "stat").read_text().rpartition(")")[2].split()[0]
            for task in Path(f"/proc/{pid}/task").iterdir()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return not Path(f"/proc/{pid}").exists()
    return all(state in "TtZX" for state in states)
