"""Hold the prompts of all tenants: pending in order of number, running, and ended ones as history.

A record is in exactly one of the three places. Numbers are ComfyUI's: lower runs first, ties by arrival.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Collection
from dataclasses import dataclass, field

from comfyserverless.control.views import RunRecord
from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.graph.plan import Plan

_Order = tuple[float, int]


@dataclass(slots=True)
class _Tenant:
    #: sorted by (number, arrival).
    pending: list[tuple[_Order, RunRecord, Plan]] = field(default_factory=list)
    running: dict[PromptId, RunRecord] = field(default_factory=dict)
    #: ended records, oldest first.
    history: dict[PromptId, RunRecord] = field(default_factory=dict)


class PromptQueue:
    """Own the records of every accepted prompt. history_limit: ended prompts kept per tenant."""

    def __init__(self, history_limit: int) -> None:
        self._history_limit = history_limit
        self._tenants: dict[TenantId, _Tenant] = {}
        self._arrivals = itertools.count()

    def tenants(self) -> list[TenantId]:
        """List the tenants that have ever sent a prompt, in order of arrival."""
        return list(self._tenants)

    def add(self, record: RunRecord, plan: Plan) -> None:
        """Put a new prompt among the pending ones."""
        tenant = self._tenants.setdefault(record.tenant, _Tenant())
        order = (record.number, next(self._arrivals))
        bisect.insort(tenant.pending, (order, record, plan), key=lambda item: item[0])

    def take(self, tenant_id: TenantId) -> tuple[RunRecord, Plan] | None:
        """Move the first pending prompt to the running ones; None if none is pending."""
        tenant = self._tenants.get(tenant_id)
        if tenant is None or not tenant.pending:
            return None
        _, record, plan = tenant.pending.pop(0)
        tenant.running[record.prompt_id] = record
        return record, plan

    def end(self, record: RunRecord) -> None:
        """Move a running prompt to history; the oldest records over the limit are dropped."""
        tenant = self._tenants[record.tenant]
        del tenant.running[record.prompt_id]
        tenant.history[record.prompt_id] = record
        while len(tenant.history) > self._history_limit:
            del tenant.history[next(iter(tenant.history))]

    def drop_pending(self, tenant_id: TenantId, prompt_ids: Collection[PromptId] | None) -> int:
        """Forget pending prompts (None: all of the tenant); returns how many there were."""
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            return 0
        before = len(tenant.pending)
        kept = [i for i in tenant.pending if prompt_ids is not None and i[1].prompt_id not in prompt_ids]
        tenant.pending = kept
        return before - len(kept)

    def drop_history(self, tenant_id: TenantId, prompt_ids: Collection[PromptId] | None) -> None:
        """Forget ended prompts (None: all of the tenant); unknown ids are ignored."""
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            return
        for prompt_id in list(tenant.history) if prompt_ids is None else prompt_ids:
            tenant.history.pop(prompt_id, None)

    def remaining(self, tenant_id: TenantId) -> int:
        """Count pending and running prompts."""
        tenant = self._tenants.get(tenant_id)
        return len(tenant.pending) + len(tenant.running) if tenant else 0

    def pending_count(self, tenant_id: TenantId) -> int:
        """Count pending prompts."""
        tenant = self._tenants.get(tenant_id)
        return len(tenant.pending) if tenant else 0

    def running(self, tenant_id: TenantId) -> list[RunRecord]:
        """List running prompts, oldest start first."""
        tenant = self._tenants.get(tenant_id)
        return list(tenant.running.values()) if tenant else []

    def pending(self, tenant_id: TenantId) -> list[RunRecord]:
        """List pending prompts, next one first."""
        tenant = self._tenants.get(tenant_id)
        return [record for _, record, _ in tenant.pending] if tenant else []

    def history(self, tenant_id: TenantId) -> list[RunRecord]:
        """List ended prompts, oldest first."""
        tenant = self._tenants.get(tenant_id)
        return list(tenant.history.values()) if tenant else []

    def find(self, tenant_id: TenantId, prompt_id: PromptId) -> RunRecord | None:
        """Return a prompt in any state, None if this tenant has no such prompt."""
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            return None
        waiting = (record for _, record, _ in tenant.pending if record.prompt_id == prompt_id)
        known = tenant.running.get(prompt_id) or tenant.history.get(prompt_id)
        return known or next(waiting, None)
