"""Hold all invocations and runs; the only writer of phases, so that counts and indexes follow every change.

An input is *available* when its producer is done; a callback input (with overlap) already when its producer
publishes: its worker has told that the function has begun and that its elements can be waited for.

Why nobody waits for ever (no deadlock): a consumer starts only after each producer of a callback input is done
or publishes. What publishes is inside its function, in a lane of its own, so it queues behind nothing; what it
may wait for itself are its own callback inputs, which are earlier in an acyclic graph, so the first of such a
chain waits for nobody, and ends. A producer that leaves its lane without a result (failed, cancelled, lost with
its worker) takes its consumers out of theirs in the same turn (`leave_followers`), so what runs again never
queues behind somebody who waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from comfyserverless.core.errors import InvariantError
from comfyserverless.core.ids import InvocationId, PromptId, TenantId
from comfyserverless.scheduling.backlog import Backlog
from comfyserverless.scheduling.instructions import CancelInvocation, ForgetInvocation
from comfyserverless.scheduling.invocations import OPEN_PHASES, Fate, InvocationRecord, Phase, RunRecord, Turn
from comfyserverless.scheduling.ledger import Ledger


class InvocationTable:
    """Own the records. Methods that change a phase keep backlog, counts and readiness in step."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        #: all and only invocations that are not forgotten
        self.records: dict[InvocationId, InvocationRecord] = {}
        #: all and only runs that are open or have unforgotten invocations
        self.runs: dict[PromptId, RunRecord] = {}
        self.backlog = Backlog()
        #: number of open runs per tenant that has one
        self._open_runs: dict[TenantId, int] = {}
        #: when those who have none closed their last one
        self._left_s: dict[TenantId, float] = {}
        self._submitted = 0

    def next_order(self) -> int:
        """Number one more submission."""
        self._submitted += 1
        return self._submitted

    def find(self, invocation: InvocationId, cause: str) -> InvocationRecord:
        """Return a record. Raises InvariantError if there is none."""
        record = self.records.get(invocation)
        if record is None:
            raise InvariantError(f"invocation {invocation} is not known (cause {cause})")
        return record

    def open_run(self, run_id: PromptId, tenant: TenantId, at_s: float) -> RunRecord:
        """Return the run, opened now if it is new; a tenant's first open run activates it in the ledger."""
        run = self.runs.get(run_id)
        if run is None:
            run = self.runs[run_id] = RunRecord(run_id, tenant, at_s)
            if tenant not in self._open_runs:
                away_s = at_s - self._left_s.pop(tenant, -math.inf)
                self._ledger.activate(tenant, away_s)
            self._open_runs[tenant] = self._open_runs.get(tenant, 0) + 1
        return run

    def close_run(self, run: RunRecord, at_s: float) -> None:
        """Mark a run as closed; it stays while it has members."""
        run.is_closed = True
        self._open_runs[run.tenant] -= 1
        if not self._open_runs[run.tenant]:
            del self._open_runs[run.tenant]
            self._left_s[run.tenant] = at_s
        self._drop_empty(run)

    def open_runs(self) -> Mapping[TenantId, int]:
        """Return how many runs each tenant has open."""
        return self._open_runs

    def insert(self, record: InvocationRecord) -> None:
        """Add a new record and link it to its producers."""
        self.records[record.spec.id] = record
        record.run.members[record.spec.id] = record
        for need in record.needs:
            need.consumers[record.spec.id] = record
        for need in record.overlaps:
            need.followers[record.spec.id] = record

    def move(self, record: InvocationRecord, phase: Phase, turn: Turn) -> None:
        """Change a phase and what is counted by it; readiness of others is changed by offer and withdraw."""
        source = record.phase
        record.enter(phase, turn)
        if source == "ready":
            self.backlog.remove(record)
        elif phase == "ready":
            record.ready_at_s = turn.at_s
            if self.backlog.add(record):
                self._ledger.lanes[record.spec.lane].enter(record.spec.tenant)
        if (source in OPEN_PHASES) != (phase in OPEN_PHASES):
            step = 1 if phase in OPEN_PHASES else -1
            if step < 0 and record.run.is_closed:
                turn.ended.append(record)
            for need in record.inputs:
                need.open_consumers += step

    def enqueue(self, record: InvocationRecord, turn: Turn) -> None:
        """Make a record wait for its inputs, or ready if it has them all."""
        self.move(record, "waiting", turn)
        record.blocked = blocked = count_missing(record)
        if not blocked:
            self.move(record, "ready", turn)

    def offer(self, consumers: Iterable[InvocationRecord], turn: Turn) -> None:
        """Tell consumers that one more of their inputs is available."""
        for consumer in consumers:
            if consumer.phase == "waiting" and not consumer.is_saved:
                self._unblock(consumer, turn)

    def give_room(self, record: InvocationRecord, turn: Turn) -> None:
        """End the wait of a record for room. Pre: it awaits some."""
        record.awaits_room = False
        if record.phase == "waiting":
            self._unblock(record, turn)

    def _unblock(self, record: InvocationRecord, turn: Turn) -> None:
        record.blocked -= 1
        if not record.blocked:
            self.move(record, "ready", turn)

    def take_back(self, consumers: Iterable[InvocationRecord], turn: Turn) -> None:
        """Tell consumers that an input which was available is not any more; running ones are left alone."""
        for consumer in consumers:
            if consumer.phase in ("waiting", "ready") and not consumer.is_saved:
                consumer.blocked += 1
                if consumer.phase == "ready":
                    self.move(consumer, "waiting", turn)

    def leave_followers(self, record: InvocationRecord, turn: Turn) -> None:
        """End what a record publishes, and stop what overlaps with it: that would hold its lane and wait."""
        if not record.is_publishing:
            return
        record.is_publishing = False
        self.take_back(record.followers.values(), turn)
        for follower in record.followers.values():
            if follower.phase == "running" and not follower.is_saved:
                self.cancel(follower, "retry", turn)

    def cancel(self, record: InvocationRecord, fate: Fate, turn: Turn) -> None:
        """Ask the worker to give a running invocation up; fate: what becomes of it when it left the lane.

        Emits: CancelInvocation, unless its lease ended: its own worker is being lost in this very turn.
        """
        self.move(record, "cancelling", turn)
        record.fate = fate
        if fate == "retry":
            turn.recalled.append(record)
        if record.lease is not None:
            turn.out.append(CancelInvocation(record.spec.id, record.lease.worker, turn.cause))
        self.leave_followers(record, turn)

    def forget(self, record: InvocationRecord, turn: Turn) -> None:
        """Remove a record. Pre: no consumer or follower is left."""
        self.move(record, "forgotten", turn)
        del self.records[record.spec.id]
        del record.run.members[record.spec.id]
        for need in record.needs:
            del need.consumers[record.spec.id]
        for need in record.overlaps:
            del need.followers[record.spec.id]
        self._drop_empty(record.run)
        turn.out.append(ForgetInvocation(record.spec.id, turn.cause))

    def _drop_empty(self, run: RunRecord) -> None:
        if run.is_closed and not run.members:
            del self.runs[run.id]


def count_missing(record: InvocationRecord) -> int:
    """Count what a record waits for: inputs, of which one that has a checkpoint needs none, and room."""
    if record.is_saved:
        return int(record.awaits_room)
    missing = record.awaits_room + sum(1 for need in record.needs if need.phase != "done")
    if record.overlaps:
        missing += sum(1 for need in record.overlaps if not need.feeds_followers())
    return missing
