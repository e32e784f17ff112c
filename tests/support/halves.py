"""Share the tests between several processes, so that servers wait beside what computes.

Tests that run the product in their own process so always share one process, in the order that pytest gives
them: what one leaves behind meets the same others in every run. They begin, as they are the largest piece.
Files that drive servers go, one at a time, to whoever has nothing left.
"""

from __future__ import annotations

import contextlib
import os
import signal

from xdist.scheduler import LoadFileScheduling

from tests.support.server import live_pids

#: Folders of files that may run in any process, since what they test runs in others.
SERVER_FOLDERS = ("browser", "contract", "parity", "process")
ALL_OTHERS = "all others"


def piece_of(test: str) -> str:
    """Return what a test (its node id, from the root of the repository) is never parted from."""
    path = test.partition("::")[0]
    return path if path.split("/")[1] in SERVER_FOLDERS else ALL_OTHERS


class Halves(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Take files of servers by themselves, everything else as one piece."""

    def _split_scope(self, nodeid: str) -> str:
        return piece_of(nodeid)


def end_what_is_left(run: str) -> None:
    """End what test processes that were ended in the middle of a test left behind. run: xdist's id of it."""
    for pid in live_pids(-1, f"PYTEST_XDIST_TESTRUNUID={run}"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
