"""Ask a policy, without the rest of scheduling: ready records, a backlog and a ledger made by hand."""

from __future__ import annotations

from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.scheduling.backlog import Backlog
from comfyserverless.scheduling.config import PolicyName, SchedulingConfig
from comfyserverless.scheduling.invocations import InvocationRecord, RunRecord
from comfyserverless.scheduling.ledger import LaneLedger
from comfyserverless.scheduling.policies.base import Choice
from comfyserverless.scheduling.policies.registry import policy_of
from tests.support.scheduling import spec


def ready(
    order: int,
    tenant: str = "A",
    *,
    run: RunRecord | None = None,
    opened_at_s: float = 0.0,
    remaining_s: float = 1.0,
    priority: int = 0,
) -> InvocationRecord:
    """Make a record, in a run of its own unless one is given."""
    run = run or RunRecord(PromptId(f"r{order}"), TenantId(tenant), opened_at_s, longest_s=remaining_s)
    spec_of = spec(f"i{order}", tenant=tenant, priority=priority)
    return InvocationRecord(spec_of, order, run, (), (), 1.0, head_s=0.0)


def ledger_with(**v_times_s: float) -> LaneLedger:
    ledger = LaneLedger(0.0, {})
    for tenant, v_time_s in v_times_s.items():
        ledger.charge(TenantId(tenant), v_time_s, 0.0)
    return ledger


class Desk:
    """Hold a backlog, and choose from it as dispatch does: what is chosen leaves."""

    def __init__(self, policy: PolicyName, *records: InvocationRecord, **config: float) -> None:
        self.backlog = Backlog()
        self.ledger = ledger_with()
        settings = {"slack_s": 0.0, **config}
        self._policy = policy_of(SchedulingConfig(policy=policy, **settings))  # type: ignore[arg-type]
        self.add(*records)

    def add(self, *records: InvocationRecord) -> None:
        for record in records:
            self.backlog.add(record)

    def choose(self, at_s: float = 0.0) -> Choice:
        choice = self._policy.choose(self.backlog, "gpu", self.ledger, at_s)
        self.backlog.remove(choice.record)
        return choice

    def orders(self, count: int) -> list[int]:
        return [self.choose().record.order for _ in range(count)]
