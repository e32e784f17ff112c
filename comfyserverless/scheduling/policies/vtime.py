"""Be fair in seconds of service: the filter over vTime, then the score (paper, Algorithm 1).

The score lets short runs of a tenant pass its long ones, without end if short ones keep coming. So every
PATIENT_TURNS-th turn of a tenant in a lane goes to the first in rank of what it has ready, whatever the score:
an invocation waits at most for so many turns of its tenant times what was before it when it got ready.
"""

from __future__ import annotations

from comfyserverless.core.ids import TenantId
from comfyserverless.core.modelfn import LANES, Lane
from comfyserverless.scheduling.backlog import Backlog
from comfyserverless.scheduling.config import SchedulingConfig
from comfyserverless.scheduling.invocations import InvocationRecord
from comfyserverless.scheduling.ledger import LaneLedger
from comfyserverless.scheduling.policies.base import Choice
from comfyserverless.scheduling.policies.scoring import best, collect

TIE_S = 1e-9
"""vTimes closer than this are equal: sums of the same charges in another order differ in the last bits."""

PATIENT_TURNS = 8
"""One in so many turns of a tenant is not decided by score."""


class VTimePolicy:
    """Let tenants within the slack of the least vTime compete by score."""

    def __init__(self, config: SchedulingConfig) -> None:
        self._window = config.score_window
        self._slack_s = config.slack_s
        #: per lane: how many turns a tenant has had by score, since the last one that was not
        self._turns: dict[Lane, dict[TenantId, int]] = {lane: {} for lane in LANES}

    def choose(self, backlog: Backlog, lane: Lane, ledger: LaneLedger, at_s: float) -> Choice:
        """Pick the best of the candidate tenants, or what the tenant with the best has had ready for long."""
        v_times = [(tenant, ledger.v_time_s(tenant)) for tenant in backlog.lanes[lane]]
        least_s = min(v_time_s for _, v_time_s in v_times)
        limit_s = self._slack_s + TIE_S
        candidates = [tenant for tenant, v_time_s in v_times if v_time_s - least_s <= limit_s]
        record = best(collect(backlog, lane, candidates, self._window), at_s)
        return Choice(self._with_patience(record, backlog, lane), least_s)

    def _with_patience(self, record: InvocationRecord, backlog: Backlog, lane: Lane) -> InvocationRecord:
        tenant, turns = record.spec.tenant, self._turns[lane]
        turns[tenant] = turn = turns.get(tenant, 0) + 1
        if turn < PATIENT_TURNS:
            return record
        turns[tenant] = 0
        return backlog.first(lane, tenant, 1)[0]
