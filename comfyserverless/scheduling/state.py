"""Own the scheduling state: events in, instructions out, time inside the events.

`SchedulingState.handle` is the only mutator. It is deterministic: the same events give the same instructions.
After every event, no lane has both a free slot and a ready invocation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from comfyserverless.core.errors import InvariantError
from comfyserverless.core.ids import InvocationId
from comfyserverless.core.modelfn import HOST_LANES
from comfyserverless.scheduling.charges import Charges
from comfyserverless.scheduling.checkpoints import Checkpoints
from comfyserverless.scheduling.config import SchedulingConfig
from comfyserverless.scheduling.dispatch import Dispatch
from comfyserverless.scheduling.estimates import Estimates
from comfyserverless.scheduling.events import (
    Event,
    InvocationCancelled,
    InvocationFailed,
    InvocationFinished,
    InvocationPublished,
    InvocationSpec,
    InvocationSubmitted,
    ResultsPinned,
    ResultsUnpinned,
    RoomAwaited,
    RunClosed,
    WorkerJoined,
    WorkerLost,
)
from comfyserverless.scheduling.instructions import AbandonInvocation, Instruction, Outcome
from comfyserverless.scheduling.invocations import BROKEN_PHASES, InvocationRecord, Lease, RunRecord, Turn
from comfyserverless.scheduling.laws import check_laws
from comfyserverless.scheduling.ledger import Ledger
from comfyserverless.scheduling.lineage import Lineage, is_wanted
from comfyserverless.scheduling.placement import WorkerPool, WorkerRecord
from comfyserverless.scheduling.table import InvocationTable

__all__ = ["SchedulingConfig", "SchedulingState"]

_Report = InvocationFinished | InvocationFailed | InvocationCancelled


class SchedulingState:
    """Schedule the invocations of all tenants over all workers."""

    def __init__(self, config: SchedulingConfig) -> None:
        self.config = config
        self.ledger = Ledger(config.slack_s, config.tenant_weights, config.grace_s)
        self.estimates = Estimates(config)
        self.table = InvocationTable(self.ledger)
        self.pool = WorkerPool()
        self._lineage = Lineage(self.table, self.pool)
        self.checkpoints = Checkpoints(config.checkpoint_steps, self.estimates)
        self._charges = Charges(self.ledger, self.table.backlog)
        self._dispatch = Dispatch(
            config, self.table, self.pool, self.estimates, self.checkpoints, self._charges
        )
        self._recent: deque[Event] = deque(maxlen=32)
        self._handlers: dict[type[Any], Callable[[Any, Turn], None]] = {
            WorkerJoined: self._on_worker_joined,
            WorkerLost: self._on_worker_lost,
            InvocationSubmitted: self._on_invocation_submitted,
            InvocationPublished: self._on_invocation_published,
            InvocationFinished: self._on_invocation_finished,
            InvocationFailed: self._on_invocation_failed,
            RoomAwaited: self._on_room_awaited,
            InvocationCancelled: self._on_invocation_cancelled,
            ResultsPinned: self._on_results_pinned,
            ResultsUnpinned: self._on_results_unpinned,
            RunClosed: self._on_run_closed,
        }

    def handle(self, event: Event) -> list[Instruction]:
        """Apply one event and fill the lanes that it freed. Raises InvariantError for an impossible event."""
        self._recent.append(event)
        turn = Turn(event.at_s, event.cause)
        self._charges.advance(event.at_s)
        self._handlers[type(event)](event, turn)
        self._lineage.feed(turn.recalled, turn)
        for record in turn.ended:
            self.checkpoints.drop_if_over(record, turn)
        self._dispatch.fill(turn)
        return turn.out

    def has_failed(self, invocation: InvocationId) -> bool:
        """Tell whether an invocation ended without a result for good; not so while it waits to run again.

        To be asked after InvocationFailed was handled: a failure for want of a lost input is not final.
        """
        record = self.table.records.get(invocation)
        return record is None or record.phase in BROKEN_PHASES

    def validate(self) -> None:
        """Check every membership law. Raises InvariantError with the recent events."""
        try:
            check_laws(self.table, self.pool)
        except InvariantError as exc:
            recent = tuple(repr(event) for event in self._recent)
            raise InvariantError(str(exc), recent) from exc

    def _on_worker_joined(self, event: WorkerJoined, turn: Turn) -> None:
        """Effect: its lanes may be filled."""
        self.pool.join(event)

    def _on_worker_lost(self, event: WorkerLost, turn: Turn) -> None:
        """Run again what the worker ran, and what rebuilds the results it held that are still wanted.

        Effect: leases end, charged what they held. Emits: RecordService per lease, DropResult per lost result,
        AbandonInvocation for what lost its worker max_attempts times. One that never joined has nothing.
        """
        worker = self.pool.remove(event.worker)
        if worker is None:
            return
        lost = sorted(worker.results.values(), key=lambda record: record.order)
        for record in lost:
            self._lineage.lose(record, turn)
        running = [record for lane in worker.running.values() for record in lane.values()]
        running.sort(key=lambda record: record.order)
        for record in running:
            lease = _take_lease(record)
            turn.out.append(self._charges.lose(record, lease, event.silent_s, turn))
        suspects = [record for record in running if record.attempts]
        for record in suspects or running:
            record.attempts += 1
        for record in running:
            self._end_lost(record, turn)
        for record in lost:
            if record.phase == "released" and is_wanted(record):
                self._lineage.require(record, turn)
        self._lineage.review(lost, turn)

    def _end_lost(self, record: InvocationRecord, turn: Turn) -> None:
        """Decide on an invocation whose worker is gone: it may have been the reason."""
        if record.phase == "cancelling" and record.fate != "retry":
            self._end_cancelled(record, turn)
        elif record.attempts >= self._most_attempts(record):
            turn.out.append(AbandonInvocation(record.spec.id, record.attempts, turn.cause))
            self._lineage.fail(record, turn, told=record.run, phase="abandoned")
        else:
            self._lineage.retry(record, turn)

    def _most_attempts(self, record: InvocationRecord) -> int:
        return 1 if record.spec.lane in HOST_LANES else self.config.max_attempts

    def _on_invocation_submitted(self, event: InvocationSubmitted, turn: Turn) -> None:
        """Make an invocation wait for its inputs; those released meanwhile are made again.

        Pre: its id is new, its needs are known, its run is not closed. One whose input failed fails at once.
        """
        spec = event.spec
        if spec.id in self.table.records:
            raise self.table.records[spec.id].error(f"{spec.id} was submitted twice (cause {event.cause})")
        run = self.table.open_run(spec.run, spec.tenant, event.at_s)
        if run.is_closed:
            raise InvariantError(f"{spec.id} was submitted to closed run {spec.run} (cause {event.cause})")
        record = self._new_record(spec, run, event.cause)
        self.table.insert(record)
        broken = [need for need in record.inputs if need.phase in BROKEN_PHASES]
        if broken:
            self._lineage.fail(record, turn, told=run if broken[0].run is run else None)
        else:
            self._lineage.require(record, turn)

    def _new_record(self, spec: InvocationSpec, run: RunRecord, cause: str) -> InvocationRecord:
        needs = {need: self.table.find(need, cause) for need in spec.needs}
        later = {need: self.table.find(need, cause) for need in spec.callback_needs if need not in needs}
        if not self.config.overlap_callbacks:
            needs.update(later)
            later = {}
        head_s = 0.0
        for need in (*needs.values(), *later.values()):
            if need.run is run:
                head_s = max(head_s, need.head_s + need.estimate_s)
        estimate_s = self.estimates.run_s(spec)
        run.longest_s = max(run.longest_s, head_s + estimate_s)
        order = self.table.next_order()
        return InvocationRecord(
            spec, order, run, tuple(needs.values()), tuple(later.values()), estimate_s, head_s
        )

    def _on_invocation_published(self, event: InvocationPublished, turn: Turn) -> None:
        """Let followers start beside it. The word of a lost worker, or of what was cancelled, is void."""
        record = self.table.records.get(event.invocation)
        if record is None or record.lease is None or record.lease.worker != event.worker:
            return
        if record.phase == "running" and not record.is_publishing:
            record.is_publishing = True
            self.table.offer(record.followers.values(), turn)

    def _on_invocation_finished(self, event: InvocationFinished, turn: Turn) -> None:
        """Keep the result, make consumers ready, drop inputs that nobody needs any more.

        A result with a holder that is lost meanwhile is lost, and made again if it is wanted.
        """
        found = self._leave_lane(event, "done", turn)
        if found is None:
            return
        record, lease = found
        if not record.is_saved:  # else it was read, not run
            self.estimates.observe(record.spec, event.timing, lease.missing, event.checkpoint_s)
        was_publishing, record.is_publishing = record.is_publishing, False
        self.table.move(record, "done", turn)
        record.is_materialised = True
        record.attempts = 0
        record.holders = event.holders
        self.table.offer(record.consumers.values(), turn)
        if not was_publishing:
            self.table.offer(record.followers.values(), turn)
        if event.checkpoint_s is not None:
            self.checkpoints.keep(record, turn)
        if not self.pool.hold(record):
            self._lineage.lose(record, turn)
            if is_wanted(record):
                self._lineage.require(record, turn)
        self._lineage.review((record, *record.inputs), turn)

    def _on_invocation_failed(self, event: InvocationFailed, turn: Turn) -> None:
        """Fail the invocation and its dependents; run it again if an input was lost, or room was made.

        One that starved waits until its producers are done: what they publish now has ended. A checkpoint that
        cannot be read is dropped, and its step run again.
        """
        found = self._leave_lane(event, "failed", turn)
        if found is None:
            return
        record, _ = found
        if event.is_starved:
            for need in record.overlaps:
                self.table.leave_followers(need, turn)
        if record.phase == "cancelling":
            self._end_cancelled(record, turn)
        elif record.has_lost_inputs or event.has_room_now or event.awaits_room or event.is_starved:
            record.awaits_room = event.awaits_room
            self._lineage.retry(record, turn)
        elif record.is_saved:
            self.checkpoints.drop(record, turn)
            self._lineage.retry(record, turn)
        else:
            self._lineage.fail(record, turn, told=record.run)

    def _on_room_awaited(self, event: RoomAwaited, turn: Turn) -> None:
        """Make ready what waited for room only. One that was released meanwhile is in want of nothing."""
        for invocation in event.invocations:
            record = self.table.records.get(invocation)
            if record is not None and record.awaits_room:
                self.table.give_room(record, turn)

    def _on_invocation_cancelled(self, event: InvocationCancelled, turn: Turn) -> None:
        """Let a cancelled invocation go the way that was decided when it was cancelled."""
        found = self._leave_lane(event, "cancelled", turn)
        if found is not None:
            self._end_cancelled(found[0], turn)

    def _end_cancelled(self, record: InvocationRecord, turn: Turn) -> None:
        if record.fate == "retry":
            self._lineage.retry(record, turn)
        elif record.fate == "fail":
            self._lineage.fail(record, turn, told=record.run)
        else:
            self.table.move(record, "released", turn)
            self._lineage.review((record, *record.inputs), turn)

    def _leave_lane(
        self, event: _Report, outcome: Outcome, turn: Turn
    ) -> tuple[InvocationRecord, Lease] | None:
        """Free the slot and settle the charge; None for the late word of a lost worker."""
        worker = self.pool.workers.get(event.worker)
        if worker is None:
            return None
        record = self.table.find(event.invocation, event.cause)
        self._check_lease(record, worker, event.cause)
        lease = _take_lease(record)
        self.pool.vacate(worker, record)
        turn.out.append(self._charges.leave(record, lease, event.timing, outcome, turn))
        return record, lease

    def _check_lease(self, record: InvocationRecord, worker: WorkerRecord, cause: str) -> None:
        if record.lease is None or record.lease.worker != worker.id:
            raise record.error(
                f"{worker.id} reports on {record.spec.id}, which it does not run (cause {cause})"
            )

    def _on_results_pinned(self, event: ResultsPinned, turn: Turn) -> None:
        """Keep these results; one that was dropped or lost before is made again. Pre: all are known."""
        for invocation in event.invocations:
            record = self.table.find(invocation, event.cause)
            record.pins += 1
            if record.is_materialised:
                self._lineage.revive(record, turn)

    def _on_results_unpinned(self, event: ResultsUnpinned, turn: Turn) -> None:
        """End one pin of each; one that was forgotten with its run is ignored."""
        for invocation in event.invocations:
            record = self.table.records.get(invocation)
            if record is None:
                continue
            if record.pins == 0:
                raise record.error(f"{invocation} is unpinned more often than pinned (cause {event.cause})")
            record.pins -= 1
            if not record.pins:
                self._lineage.review((record,), turn)

    def _on_run_closed(self, event: RunClosed, turn: Turn) -> None:
        """Drop what of the run waits, cancel what runs; keep pinned results and what other runs wait for.

        Consumers come before their producers. A run that never submitted anything is not known: nothing to do.
        """
        run = self.table.runs.get(event.run)
        if run is None or run.is_closed:
            return
        members = list(run.members.values())
        self.table.close_run(run, event.at_s)
        for record in reversed(members):
            self._lineage.review((record,), turn)
        self.checkpoints.close(run, turn)


def _take_lease(record: InvocationRecord) -> Lease:
    lease, record.lease = record.lease, None
    if lease is None:
        raise record.error(f"{record.spec.id} is in a lane without a lease")
    return lease
