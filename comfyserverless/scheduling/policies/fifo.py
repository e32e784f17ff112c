"""Serve whole runs in order of arrival, as a server with one queue does: for comparison.

How many runs are open at once is decided before (`admission`): with this policy one per worker, over all
tenants. What is here orders their invocations: the run that was opened first goes first.
"""

from __future__ import annotations

from comfyserverless.core.modelfn import Lane
from comfyserverless.scheduling.backlog import Backlog
from comfyserverless.scheduling.config import SchedulingConfig
from comfyserverless.scheduling.ledger import LaneLedger
from comfyserverless.scheduling.policies.base import Choice, least_v_time_s
from comfyserverless.scheduling.policies.scoring import collect


class FifoPolicy:
    """Let the run that was opened first go first."""

    def __init__(self, config: SchedulingConfig) -> None:
        self._window = config.score_window

    def choose(self, backlog: Backlog, lane: Lane, ledger: LaneLedger, at_s: float) -> Choice:
        """Pick the first ready invocation of the oldest run."""
        tenants = backlog.lanes[lane]
        ready = collect(backlog, lane, list(tenants), self._window)
        chosen = min(ready, key=lambda record: (record.run.opened_at_s, record.order))
        return Choice(chosen, least_v_time_s(tenants, ledger))
