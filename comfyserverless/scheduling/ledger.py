"""Keep each tenant's vTime, lane by lane: seconds of service received, divided by the tenant's weight.

Rules. An estimate is charged at dispatch and replaced by the measured seconds when the invocation leaves its
lane, however it leaves. A run that was lost with its worker is charged the seconds that it held the lane, at
most the estimate: a call that kills workers is not free, and the time it took to notice is nobody's service.

Every lane has its own accounts, since fairness is about those who compete for the same slots: seconds in a
CPU lane neither buy nor cost turns on a GPU.

Two lifts bound what a tenant can save up (both only ever raise):
- a tenant that is new or comes back starts at the lane's virtual time: the least vTime among those who competed
  for the last dispatch (start-time fair queueing, Goyal et al. 1996). It is the paper's minimum vTime of the
  active tenants, taken before work in flight was charged: a newcomer is not held behind what just started;
- a tenant that gets ready work again after a pause without any is raised to within slack + L of the lane's
  leader, with L the largest single charge so far. Without it, a tenant that can only use one slot at a time (a
  chain of steps) would save up credit without bound on a big pool, and the paper's bound 2 (slack + L) would
  not hold once it has work for many slots.
"""

from __future__ import annotations

from collections.abc import Mapping

from comfyserverless.core.ids import TenantId
from comfyserverless.core.modelfn import LANES, Lane


class LaneLedger:
    """Hold the accounts of one lane. All vTimes are seconds of service divided by weight."""

    def __init__(self, slack_s: float, weights: Mapping[TenantId, float]) -> None:
        self._slack_s = slack_s
        self._weights = weights
        #: vTime of every tenant that was ever active; never lowered but by a settlement
        self._v_time_s: dict[TenantId, float] = {}
        #: measured seconds of service of every tenant that was ever served, whatever its weight; only grows
        self._served_s: dict[TenantId, float] = {}
        #: seconds that tenants' calls held the lane without service, waiting for other calls; not charged
        self._waited_s: dict[TenantId, float] = {}
        #: the virtual time: least vTime among the competitors of a dispatch, never falls
        self.floor_s = 0.0
        #: the largest vTime that a dispatch or settlement led to
        self.leader_s = 0.0
        #: the largest single charge, estimated or measured, divided by weight
        self.largest_s = 0.0

    def v_time_s(self, tenant: TenantId) -> float:
        """Return the vTime; a tenant that never came starts at zero."""
        return self._v_time_s.get(tenant, 0.0)

    def served_s(self, tenant: TenantId) -> float:
        """Return the seconds of service that a tenant was given."""
        return self._served_s.get(tenant, 0.0)

    def waited_s(self, tenant: TenantId) -> float:
        """Return the seconds that a tenant's calls waited in the lane."""
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
        """Lift a tenant whose first invocation got ready to within slack + largest charge of the leader."""
        credit_s = self._slack_s + self.largest_s
        self._v_time_s[tenant] = max(self.v_time_s(tenant), self.leader_s - credit_s)

    def charge(self, tenant: TenantId, estimate_s: float, least_s: float) -> float:
        """Charge an estimate at dispatch; least_s is the least vTime of the competitors.

        Returns the charge, in vTime, to be handed to `settle`.
        """
        charge_s = estimate_s / self._weights.get(tenant, 1.0)
        self.floor_s = max(self.floor_s, least_s)
        self._raise_to(tenant, self.v_time_s(tenant) + charge_s, charge_s)
        return charge_s

    def settle(self, tenant: TenantId, charge_s: float, measured_s: float) -> None:
        """Replace an earlier charge by the measured seconds."""
        self._note_service(tenant, measured_s)
        actual_s = measured_s / self._weights.get(tenant, 1.0)
        self._raise_to(tenant, self.v_time_s(tenant) - charge_s + actual_s, actual_s)

    def refund_lost(self, tenant: TenantId, charge_s: float, held_s: float) -> float:
        """Replace the charge of a lost run by the seconds it held its lane, at most the charge itself.

        Returns the seconds of service that count.
        """
        weight = self._weights.get(tenant, 1.0)
        actual_s = min(charge_s, max(0.0, held_s) / weight)
        self._note_service(tenant, actual_s * weight)
        self._v_time_s[tenant] = self.v_time_s(tenant) - charge_s + actual_s
        return actual_s * weight

    def _note_service(self, tenant: TenantId, service_s: float) -> None:
        self._served_s[tenant] = self.served_s(tenant) + service_s

    def _raise_to(self, tenant: TenantId, v_time_s: float, charge_s: float) -> None:
        self._v_time_s[tenant] = v_time_s
        self.leader_s = max(self.leader_s, v_time_s)
        self.largest_s = max(self.largest_s, charge_s)


class Ledger:
    """Hold one `LaneLedger` per lane."""

    def __init__(self, slack_s: float, weights: Mapping[TenantId, float]) -> None:
        self.lanes: dict[Lane, LaneLedger] = {lane: LaneLedger(slack_s, weights) for lane in LANES}

    def service_s(self, tenant: TenantId) -> dict[str, float]:
        """Return the seconds of service that a tenant was given, by lane."""
        return {lane: ledger.served_s(tenant) for lane, ledger in self.lanes.items()}

    def waited_s(self, tenant: TenantId) -> dict[str, float]:
        """Return the seconds that a tenant's calls waited in a lane, by lane."""
        return {lane: ledger.waited_s(tenant) for lane, ledger in self.lanes.items()}

    def activate(self, tenant: TenantId) -> None:
        """Lift a tenant that opens its first run, in every lane."""
        for lane in self.lanes.values():
            lane.activate(tenant)
