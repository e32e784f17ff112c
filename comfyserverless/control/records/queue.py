"""Hold the prompts of all tenants that are not over: being accepted, pending in order of number, running.

A record is in exactly one of the three places. Higher priority runs first, then, as in ComfyUI, the lower
number, then what arrived first.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from comfyserverless.control.views import RunRecord
from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.graph.plan import Plan
from comfyserverless.scheduling.policies.open_runs import Line

_Order = tuple[int, float, int]
_PLANS_KEPT = 64
"""So many pending prompts of a tenant keep their plan; the plans of the others are made again when they run."""


@dataclass(slots=True)
class _Waiting:
    record: RunRecord
    plan: Plan | None


@dataclass(slots=True)
class _Tenant:
    #: prompts that are on their way to the disk.
    accepting: dict[PromptId, RunRecord] = field(default_factory=dict)
    #: the orders of all and only the prompts in `waiting`, sorted.
    orders: list[_Order] = field(default_factory=list)
    waiting: dict[_Order, _Waiting] = field(default_factory=dict)
    order_of: dict[PromptId, _Order] = field(default_factory=dict)
    running: dict[PromptId, RunRecord] = field(default_factory=dict)


class PromptQueue:
    """Own the records of every prompt that is not over."""

    def __init__(self) -> None:
        self._tenants: dict[TenantId, _Tenant] = {}
        self._arrivals = itertools.count()

    def tenants(self) -> list[TenantId]:
        """List the tenants that have ever sent a prompt, in order of arrival."""
        return list(self._tenants)

    def waiting(self, *, by_arrival: bool) -> Iterator[TenantId]:
        """List the tenants with a pending prompt; if it is asked, in order of the arrival of their next one."""
        waiting = [name for name, tenant in self._tenants.items() if tenant.orders]
        if by_arrival:
            waiting.sort(key=lambda name: self._tenants[name].orders[0][-1])
        return iter(waiting)

    def running_count(self) -> int:
        """Count the running prompts of all tenants."""
        return sum(len(tenant.running) for tenant in self._tenants.values())

    def line(self, tenant_id: TenantId) -> Line:
        """Describe what a tenant has running, and its next prompt. Pre: one is pending."""
        tenant = self._tenants[tenant_id]
        highest = max((record.priority for record in tenant.running.values()), default=None)
        return Line(len(tenant.running), -tenant.orders[0][0], highest)

    def reserve(self, record: RunRecord) -> None:
        """Take a prompt's id and place in the limits, before it is accepted for good."""
        self._tenants.setdefault(record.tenant, _Tenant()).accepting[record.prompt_id] = record

    def withdraw(self, record: RunRecord) -> None:
        """Forget a reserved prompt: it could not be accepted."""
        del self._tenants[record.tenant].accepting[record.prompt_id]

    def add(self, record: RunRecord, plan: Plan | None) -> None:
        """Put a new prompt, reserved or not, among the pending ones. plan: None if it is to be made later."""
        tenant = self._tenants.setdefault(record.tenant, _Tenant())
        tenant.accepting.pop(record.prompt_id, None)
        order = (-record.priority, record.number, next(self._arrivals))
        bisect.insort(tenant.orders, order)
        tenant.waiting[order] = _Waiting(record, plan if len(tenant.orders) <= _PLANS_KEPT else None)
        tenant.order_of[record.prompt_id] = order

    def take(self, tenant_id: TenantId) -> tuple[RunRecord, Plan | None] | None:
        """Move the first pending prompt to the running ones; None if none is pending."""
        tenant = self._tenants.get(tenant_id)
        if tenant is None or not tenant.orders:
            return None
        first = tenant.waiting.pop(tenant.orders.pop(0))
        del tenant.order_of[first.record.prompt_id]
        tenant.running[first.record.prompt_id] = first.record
        return first.record, first.plan

    def end(self, record: RunRecord) -> None:
        """Let go of a running prompt."""
        del self._tenants[record.tenant].running[record.prompt_id]

    def drop_pending(self, tenant_id: TenantId, prompt_ids: Collection[PromptId] | None) -> list[PromptId]:
        """Forget pending prompts (None: all of the tenant); returns which there were."""
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            return []
        wanted = list(tenant.order_of) if prompt_ids is None else list(dict.fromkeys(prompt_ids))
        dropped = [each for each in wanted if each in tenant.order_of]
        for each in dropped:
            order = tenant.order_of.pop(each)
            del tenant.waiting[order]
        if len(dropped) == 1:
            del tenant.orders[bisect.bisect_left(tenant.orders, order)]
        elif dropped:
            tenant.orders = [order for order in tenant.orders if order in tenant.waiting]
        return dropped

    def remaining(self, tenant_id: TenantId) -> int:
        """Count pending and running prompts."""
        tenant = self._tenants.get(tenant_id)
        return len(tenant.orders) + len(tenant.running) if tenant else 0

    def pending_count(self, tenant_id: TenantId) -> int:
        """Count pending prompts, and those that are about to be."""
        tenant = self._tenants.get(tenant_id)
        return len(tenant.orders) + len(tenant.accepting) if tenant else 0

    def running(self, tenant_id: TenantId) -> list[RunRecord]:
        """List running prompts, oldest start first."""
        tenant = self._tenants.get(tenant_id)
        return list(tenant.running.values()) if tenant else []

    def pending(self, tenant_id: TenantId, limit: int | None = None) -> list[RunRecord]:
        """List pending prompts, next one first, at most `limit`."""
        tenant = self._tenants.get(tenant_id)
        return [tenant.waiting[order].record for order in tenant.orders[:limit]] if tenant else []

    def find(self, tenant_id: TenantId, prompt_id: PromptId) -> RunRecord | None:
        """Return a pending or running prompt, None if this tenant has no such prompt."""
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            return None
        order = tenant.order_of.get(prompt_id)
        return tenant.running.get(prompt_id) if order is None else tenant.waiting[order].record

    def holder(self, tenant_id: TenantId, prompt_id: PromptId) -> RunRecord | None:
        """Return the prompt that has an id now, also one that is only about to be accepted, or None."""
        tenant = self._tenants.get(tenant_id)
        reserved = None if tenant is None else tenant.accepting.get(prompt_id)
        return reserved or self.find(tenant_id, prompt_id)
