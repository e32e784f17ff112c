"""Serve tenants by the number of prompts that were begun for them, as gateways count: for comparison.

The tenant with the fewest prompts begins its next one; a prompt keeps the place that it was begun with. Who was
away or is new saves up one prompt at most, as vTime saves up no more than a bound.
"""

from __future__ import annotations

from comfyserverless.core.ids import TenantId
from comfyserverless.core.modelfn import Lane
from comfyserverless.scheduling.backlog import Backlog
from comfyserverless.scheduling.config import SchedulingConfig
from comfyserverless.scheduling.invocations import InvocationRecord
from comfyserverless.scheduling.ledger import LaneLedger
from comfyserverless.scheduling.policies.base import Choice, least_v_time_s
from comfyserverless.scheduling.policies.scoring import collect


class RequestCountPolicy:
    """Let the prompt with the lowest place among those of its tenant go first."""

    def __init__(self, config: SchedulingConfig) -> None:
        self._window = config.score_window
        #: how many prompts were begun for each tenant, lifted to one less than the most
        self._begun: dict[TenantId, int] = {}
        self._most = 0

    def choose(self, backlog: Backlog, lane: Lane, ledger: LaneLedger, at_s: float) -> Choice:
        """Pick from the prompt with the lowest place, and begin it if it has not begun."""
        tenants = backlog.lanes[lane]
        ready = collect(backlog, lane, list(tenants), self._window)
        chosen = min(ready, key=lambda record: (self._place(record), record.order))
        if chosen.run.place is None:
            self._begin(chosen)
        return Choice(chosen, least_v_time_s(tenants, ledger))

    def _place(self, record: InvocationRecord) -> int:
        place = record.run.place
        return self._count(record.spec.tenant) if place is None else place

    def _count(self, tenant: TenantId) -> int:
        return max(self._begun.get(tenant, 0), self._most - 1)

    def _begin(self, record: InvocationRecord) -> None:
        tenant = record.spec.tenant
        place = record.run.place = self._count(tenant)
        self._begun[tenant] = place + 1
        self._most = max(self._most, place + 1)
