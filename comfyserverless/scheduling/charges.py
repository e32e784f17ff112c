"""Charge tenants for what holds a lane: an estimate when it starts, what counts when it leaves.

- A stay is charged the seconds of load, compute and transfer that its worker measured.
- A call that waits in its lane for elements of a callback input holds it without service. That costs nobody
  anything while nobody else wants the lane; while another tenant does, it is charged as service. How much of a
  wait that was is not known, only when the stay was and when the lane was wanted, so it is the most that it can
  have been. So no tenant holds a lane that others want for longer than it is charged for.
- A stay that was lost with its worker has no measurement. It is charged the seconds that it held the lane while
  the worker is known to have lived, and of those in which it was silent no more than the estimate: a call that
  kills workers is not free, and the time it took to notice is nobody's service.
"""

from __future__ import annotations

from comfyserverless.core.ids import TenantId
from comfyserverless.core.messages import Timing
from comfyserverless.core.modelfn import LANES, Lane
from comfyserverless.scheduling.backlog import Backlog
from comfyserverless.scheduling.instructions import Outcome, RecordService
from comfyserverless.scheduling.invocations import InvocationRecord, Lease, Turn
from comfyserverless.scheduling.ledger import Ledger


class WantedLane:
    """Measure for how long a lane was full and wanted by others than one tenant. All and only time so far."""

    def __init__(self) -> None:
        self._wanted_s = 0.0
        #: tenant -> for how long it was the only one that wanted the lane
        self._alone_s: dict[TenantId, float] = {}

    def pass_time(self, seconds: float, tenants: dict[TenantId, list[int]]) -> None:
        """Let some seconds pass in which these tenants had ready invocations."""
        if tenants:
            self._wanted_s += seconds
            if len(tenants) == 1:
                (tenant,) = tenants
                self._alone_s[tenant] = self._alone_s.get(tenant, 0.0) + seconds

    def by_others_s(self, tenant: TenantId) -> float:
        """Return for how long somebody else than a tenant wanted the lane."""
        return self._wanted_s - self._alone_s.get(tenant, 0.0)


class Charges:
    """Carry out the rules above."""

    def __init__(self, ledger: Ledger, backlog: Backlog) -> None:
        self.ledger = ledger
        self._backlog = backlog
        self._wanted: dict[Lane, WantedLane] = {lane: WantedLane() for lane in LANES}
        self._at_s = 0.0

    def advance(self, at_s: float) -> None:
        """Let time pass, before anything changes."""
        seconds = at_s - self._at_s
        if seconds > 0:
            self._at_s = at_s
            for lane, tenants in self._backlog.lanes.items():
                self._wanted[lane].pass_time(seconds, tenants)

    def by_others_s(self, record: InvocationRecord) -> float:
        """Return for how long others have wanted the lane of a record so far; to be put into its lease."""
        return self._wanted[record.spec.lane].by_others_s(record.spec.tenant)

    def leave(
        self, record: InvocationRecord, lease: Lease, timing: Timing, outcome: Outcome, turn: Turn
    ) -> RecordService:
        """Settle a stay that was measured."""
        tenant, lane = record.spec.tenant, self.ledger.lanes[record.spec.lane]
        wanted_s = min(timing.waited_s, max(0.0, self.by_others_s(record) - lease.by_others_s))
        charged_s = timing.total_s() + wanted_s
        lane.settle(tenant, lease.estimate_s, charged_s)
        lane.note_wait(tenant, timing.waited_s - wanted_s)
        return _service(record, lease, timing, outcome, turn, charged_s)

    def lose(self, record: InvocationRecord, lease: Lease, silent_s: float, turn: Turn) -> RecordService:
        """Settle a stay that was lost with its worker, which had said nothing for some seconds."""
        held_s = max(0.0, turn.at_s - lease.started_at_s)
        lived_s = held_s - min(held_s, silent_s)
        charged_s = max(lived_s, min(held_s, lease.estimate_s))
        self.ledger.lanes[record.spec.lane].settle(record.spec.tenant, lease.estimate_s, charged_s)
        return _service(record, lease, Timing(), "lost", turn, charged_s)


def _service(
    record: InvocationRecord, lease: Lease, timing: Timing, outcome: Outcome, turn: Turn, charged_s: float
) -> RecordService:
    held_s = turn.at_s - lease.started_at_s
    return RecordService(
        record.spec.id, lease.worker, outcome, lease.queued_s, held_s, timing, charged_s, turn.cause
    )
