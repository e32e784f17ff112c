"""Serve the tenants in turn, one invocation each, whatever it costs: for comparison."""

from __future__ import annotations

from comfyserverless.core.ids import TenantId
from comfyserverless.core.modelfn import LANES, Lane
from comfyserverless.scheduling.backlog import Backlog
from comfyserverless.scheduling.config import SchedulingConfig
from comfyserverless.scheduling.ledger import LaneLedger
from comfyserverless.scheduling.policies.base import Choice, least_v_time_s
from comfyserverless.scheduling.policies.scoring import best, collect


class RoundRobinPolicy:
    """Let the tenant whose last turn is the longest ago go first."""

    def __init__(self, config: SchedulingConfig) -> None:
        self._window = config.score_window
        #: per lane: tenant -> the number of its last turn
        self._last_turn: dict[Lane, dict[TenantId, int]] = {lane: {} for lane in LANES}
        self._turns = 0

    def choose(self, backlog: Backlog, lane: Lane, ledger: LaneLedger, at_s: float) -> Choice:
        """Pick the best of the tenant whose turn it is."""
        tenants, last_turn = backlog.lanes[lane], self._last_turn[lane]
        tenant = min(tenants, key=lambda each: last_turn.get(each, 0))
        self._turns += 1
        last_turn[tenant] = self._turns
        record = best(collect(backlog, lane, [tenant], self._window), at_s)
        return Choice(record, least_v_time_s(tenants, ledger))
