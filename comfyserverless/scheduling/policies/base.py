"""Define what a policy is asked, and how the vTime of those who compete is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from comfyserverless.core.ids import TenantId
from comfyserverless.core.modelfn import Lane
from comfyserverless.scheduling.backlog import Backlog
from comfyserverless.scheduling.invocations import InvocationRecord
from comfyserverless.scheduling.ledger import LaneLedger


@dataclass(frozen=True, slots=True)
class Choice:
    """The invocation to dispatch, and the least vTime among those who competed."""

    record: InvocationRecord
    least_s: float


class Policy(Protocol):
    """Choose the next invocation of a lane. The same calls in the same order give the same choices."""

    def choose(self, backlog: Backlog, lane: Lane, ledger: LaneLedger, at_s: float) -> Choice:
        """Pick from a lane's backlog; what is picked is dispatched. Pre: the lane has ready invocations."""


def least_v_time_s(tenants: Iterable[TenantId], ledger: LaneLedger) -> float:
    """Return the least vTime of some tenants. Pre: there is one."""
    return min(ledger.v_time_s(tenant) for tenant in tenants)
