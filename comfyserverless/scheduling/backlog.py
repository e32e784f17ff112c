"""Index the ready invocations by lane and tenant, by rank; suspects may be held back.

A rank is an invocation's place among those of its tenant: higher priority first, then first submitted first.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from comfyserverless.core.ids import TenantId
from comfyserverless.core.modelfn import LANES, Lane
from comfyserverless.scheduling.invocations import InvocationRecord


class Backlog:
    """Hold all and only the invocations that are ready."""

    def __init__(self) -> None:
        #: per lane, for all and only tenants with ready invocations: their ranks, ascending
        self.lanes: dict[Lane, dict[TenantId, list[int]]] = {lane: {} for lane in LANES}
        #: ready suspects that are in no lane above, by submission number
        self.held: dict[int, InvocationRecord] = {}
        #: all and only suspects that are in a lane above
        self._suspects: dict[int, InvocationRecord] = {}
        #: all ready invocations, by rank: no two have the same, whosever they are
        self._records: dict[int, InvocationRecord] = {}

    def add(self, record: InvocationRecord) -> bool:
        """Insert a record; True if its tenant had nothing ready in the lane before. A suspect is held back."""
        self._records[record.rank] = record
        if record.attempts:
            self.held[record.order] = record
            return False
        return self._insert(record)

    def let_in(self) -> list[InvocationRecord]:
        """Let all suspects in; returns those whose tenant had nothing ready in the lane before."""
        held, self.held = self.held, {}
        self._suspects.update(held)
        return [record for record in held.values() if self._insert(record)]

    def hold_back(self) -> None:
        """Take all suspects out of the lanes, until they are let in."""
        suspects, self._suspects = self._suspects, {}
        for record in suspects.values():
            self._take_out(record)
        self.held.update(suspects)

    def _insert(self, record: InvocationRecord) -> bool:
        tenants = self.lanes[record.spec.lane]
        ranks = tenants.get(record.spec.tenant)
        if ranks is None:
            tenants[record.spec.tenant] = [record.rank]
            return True
        insort(ranks, record.rank)
        return False

    def remove(self, record: InvocationRecord) -> None:
        """Take a record out. Pre: it is in."""
        del self._records[record.rank]
        if self.held.pop(record.order, None) is None:
            self._suspects.pop(record.order, None)
            self._take_out(record)

    def _take_out(self, record: InvocationRecord) -> None:
        tenants = self.lanes[record.spec.lane]
        ranks = tenants[record.spec.tenant]
        if len(ranks) == 1:
            del tenants[record.spec.tenant]
        else:
            del ranks[bisect_left(ranks, record.rank)]

    def first(self, lane: Lane, tenant: TenantId, count: int) -> list[InvocationRecord]:
        """List up to `count` ready invocations of a tenant: of its highest priority only, oldest first."""
        found = [self._records[rank] for rank in self.lanes[lane][tenant][:count]]
        highest = found[0].spec.priority
        if found[-1].spec.priority != highest:
            return [record for record in found if record.spec.priority == highest]
        return found

    def records(self) -> list[InvocationRecord]:
        """List all ready invocations, first submitted first."""
        return sorted(self._records.values(), key=lambda record: record.order)
