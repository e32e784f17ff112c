"""Serve the run that is done soonest, by estimates, at every step: for comparison.

This is shortest remaining processing time over the open runs; tenants play no part, so long runs may starve.
"""

from __future__ import annotations

from comfyserverless.core.modelfn import Lane
from comfyserverless.scheduling.backlog import Backlog
from comfyserverless.scheduling.config import SchedulingConfig
from comfyserverless.scheduling.ledger import LaneLedger
from comfyserverless.scheduling.policies.base import Choice, least_v_time_s
from comfyserverless.scheduling.policies.scoring import collect


class ShortestJobPolicy:
    """Let the run with the least estimated seconds left go first."""

    def __init__(self, config: SchedulingConfig) -> None:
        self._window = config.score_window

    def choose(self, backlog: Backlog, lane: Lane, ledger: LaneLedger, at_s: float) -> Choice:
        """Pick the invocation whose run has the shortest way to its end."""
        tenants = backlog.lanes[lane]
        ready = collect(backlog, lane, list(tenants), self._window)
        chosen = min(ready, key=lambda record: (record.remaining_s(), record.order))
        return Choice(chosen, least_v_time_s(tenants, ledger))
