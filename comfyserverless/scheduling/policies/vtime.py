"""Be fair in seconds of service: the filter over vTime, then the score (paper, Algorithm 1)."""

from __future__ import annotations

from comfyserverless.core.modelfn import Lane
from comfyserverless.scheduling.backlog import Backlog
from comfyserverless.scheduling.config import SchedulingConfig
from comfyserverless.scheduling.ledger import LaneLedger
from comfyserverless.scheduling.policies.base import Choice
from comfyserverless.scheduling.policies.scoring import best, collect

TIE_S = 1e-9
"""vTimes closer than this are equal: sums of the same charges in another order differ in the last bits."""


class VTimePolicy:
    """Let tenants within the slack of the least vTime compete by score."""

    def __init__(self, config: SchedulingConfig) -> None:
        self._window = config.score_window
        self._slack_s = config.slack_s

    def choose(self, backlog: Backlog, lane: Lane, ledger: LaneLedger, at_s: float) -> Choice:
        """Pick the best of the candidate tenants."""
        v_times = [(tenant, ledger.v_time_s(tenant)) for tenant in backlog.lanes[lane]]
        least_s = min(v_time_s for _, v_time_s in v_times)
        limit_s = self._slack_s + TIE_S
        candidates = [tenant for tenant, v_time_s in v_times if v_time_s - least_s <= limit_s]
        return Choice(best(collect(backlog, lane, candidates, self._window), at_s), least_s)
