"""Keep each tenant's vTime, lane by lane: seconds of service received, divided by the tenant's weight.

Rules. An estimate is charged at dispatch and replaced by the measured seconds when the invocation leaves its
lane, however it leaves. What is charged when is the business of `charges`.

Every lane has its own accounts, since fairness is about those who compete for the same slots: seconds in a
CPU lane neither buy nor cost turns on a GPU.

Two lifts bound what a tenant can save up (both only ever raise):
- a tenant that is new or comes back starts at the lane's virtual time: the least vTime among those who competed
  for the last dispatch (start-time fair queueing, Goyal et al. 1996). It is the paper's minimum vTime of the
  active tenants, taken before work in flight was charged: a newcomer is not held behind what just started. Who
  had no run open for less than the grace did not come back: between two prompts of a tenant that has more there
  is a moment without, and to be lifted each time would cost it half of its share and more;
- a tenant that gets ready work again after a pause without any is raised to within slack + grace of the lead:
  the largest vTime that anybody was dispatched at. Without it, a tenant that can only use one slot at a time (a
  chain of steps) would save up credit without bound on a big pool, and the paper's bound 2 (slack + L), with L
  the largest charge, would not hold once it has work for many slots. With a grace it is that much wider; but
  without one, a tenant that pauses for the blink of an eye at a time, while a picture is saved, can never make
  up for it. The lead is taken before the charge: so one tenant's large charge (a small weight, a cold start) is
  no credit of the others.

A weight that changes holds from then on: the tenant keeps the seconds of service that it is ahead of the
virtual time, or behind, and they are divided by the new weight. Otherwise a weight that was set too small by
mistake would be paid for long after it was put right (the same in EEVDF, Stoica and Abdel-Wahab 1995).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from comfyserverless.core.ids import TenantId
from comfyserverless.core.modelfn import LANES, Lane


class LaneLedger:
    """Hold the accounts of one lane. All vTimes are seconds of service divided by weight.

    credit_s: how far a tenant that gets work may be behind the lead; weights: those that the vTimes are
    expressed in, 1.0 if not named.
    """

    def __init__(self, credit_s: float, weights: Mapping[TenantId, float]) -> None:
        self._credit_s = credit_s
        self._weights = weights
        #: vTime of every tenant that was ever active; never lowered but by a settlement or a new weight
        self._v_time_s: dict[TenantId, float] = {}
        #: measured seconds of service of every tenant that was ever served, whatever its weight; only grows
        self._served_s: dict[TenantId, float] = {}
        #: seconds that tenants' calls held the lane without service, waiting for other calls; not charged
        self._waited_s: dict[TenantId, float] = {}
        #: the virtual time: least vTime among the competitors of a dispatch, never falls
        self.floor_s = 0.0
        #: the largest vTime that anybody was dispatched at
        self.lead_s = 0.0

    def v_time_s(self, tenant: TenantId) -> float:
        """Return the vTime; a tenant that never came starts at zero."""
        return self._v_time_s.get(tenant, 0.0)

    def served_s(self, tenant: TenantId) -> float:
        """Return the seconds of service that a tenant was given."""
        return self._served_s.get(tenant, 0.0)

    def waited_s(self, tenant: TenantId) -> float:
        """Return the seconds that a tenant's calls waited in the lane and were not charged for."""
        return self._waited_s.get(tenant, 0.0)

    def note_wait(self, tenant: TenantId, waited_s: float) -> None:
        """Add to what `waited_s` returns; vTime does not change."""
        if waited_s:
            self._waited_s[tenant] = self.waited_s(tenant) + waited_s

    def snapshot(self) -> dict[TenantId, float]:
        """Copy all vTimes, for metrics and tests."""
        return dict(self._v_time_s)

    def activate(self, tenant: TenantId) -> None:
        """Lift a tenant that is new or comes back to the virtual time."""
        self._v_time_s[tenant] = max(self.v_time_s(tenant), self.floor_s)

    def enter(self, tenant: TenantId) -> None:
        """Lift a tenant whose first invocation got ready to within the credit of the lead."""
        self._v_time_s[tenant] = max(self.v_time_s(tenant), self.lead_s - self._credit_s)

    def charge(self, tenant: TenantId, estimate_s: float, least_s: float) -> None:
        """Charge an estimate at dispatch; least_s is the least vTime of the competitors."""
        v_time_s = self.v_time_s(tenant)
        self.floor_s = max(self.floor_s, least_s)
        self.lead_s = max(self.lead_s, v_time_s)
        self._v_time_s[tenant] = v_time_s + estimate_s / self._weights.get(tenant, 1.0)

    def settle(self, tenant: TenantId, estimate_s: float, measured_s: float) -> None:
        """Replace an estimate that was charged by the measured seconds."""
        self._served_s[tenant] = self.served_s(tenant) + measured_s
        weight = self._weights.get(tenant, 1.0)
        self._v_time_s[tenant] = self.v_time_s(tenant) - estimate_s / weight + measured_s / weight

    def reweigh(self, tenant: TenantId, before: float, after: float) -> None:
        """Express the distance of a tenant from the virtual time in a new weight."""
        distance_s = self.v_time_s(tenant) - self.floor_s
        self._v_time_s[tenant] = self.floor_s + distance_s * before / after


class Ledger:
    """Hold one `LaneLedger` per lane. weights: may change; `refresh` and `activate` look."""

    def __init__(self, slack_s: float, weights: Mapping[TenantId, float], grace_s: float = 0.0) -> None:
        self._weights = weights
        self._grace_s = grace_s
        #: the weights that vTimes are expressed in, of every tenant that was ever active
        self._in_use: dict[TenantId, float] = {}
        credit_s = slack_s + grace_s
        self.lanes: dict[Lane, LaneLedger] = {lane: LaneLedger(credit_s, self._in_use) for lane in LANES}

    def weight(self, tenant: TenantId) -> float:
        """Return the weight that a tenant's vTime is expressed in now."""
        return self._in_use.get(tenant, 1.0)

    def service_s(self, tenant: TenantId) -> dict[str, float]:
        """Return the seconds of service that a tenant was given, by lane."""
        return {lane: ledger.served_s(tenant) for lane, ledger in self.lanes.items()}

    def waited_s(self, tenant: TenantId) -> dict[str, float]:
        """Return the seconds that a tenant's calls waited in a lane and were not charged for, by lane."""
        return {lane: ledger.waited_s(tenant) for lane, ledger in self.lanes.items()}

    def activate(self, tenant: TenantId, away_s: float = math.inf) -> None:
        """Take note that a tenant opens a run and has no other; lift it if it was away for long, or is new."""
        self.refresh((tenant,))
        if away_s > self._grace_s:
            for lane in self.lanes.values():
                lane.activate(tenant)

    def refresh(self, tenants: Iterable[TenantId]) -> None:
        """Let the weights that tenants have now hold."""
        for tenant in tenants:
            weight = self._weights.get(tenant, 1.0)
            before = self._in_use.get(tenant)
            if weight == before:
                continue
            if before is not None:
                for lane in self.lanes.values():
                    lane.reweigh(tenant, before, weight)
            self._in_use[tenant] = weight
