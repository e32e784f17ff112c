"""Decide how long results and specs are kept, and what is run again when they are lost.

- A result is *needed* while somebody outside pins it or an open invocation consumes it.
- An invocation is *wanted* in a lane while its run is open and it was never done; or, once it was done, while
  its result is pinned; or while a consumer that does not run yet needs it. A consumer that already runs may
  have its inputs by now: a lost input is made again only when that consumer fails.
- A spec is kept while its result is needed, or any of its consumers is kept: they could need it to be rebuilt.
- What has a checkpoint wants nothing of its producers: its result is read from there (see `checkpoints`).
- What fails takes its open dependents with it. The control room learns of the failed call from the worker and
  closes its run; a dependent in another run (by a pinned result that was being rebuilt) is reported with
  AbandonInvocation.
"""

from __future__ import annotations

from collections.abc import Iterable

from comfyserverless.scheduling.instructions import AbandonInvocation, DropResult
from comfyserverless.scheduling.invocations import BROKEN_PHASES, InvocationRecord, Phase, RunRecord, Turn
from comfyserverless.scheduling.placement import WorkerPool
from comfyserverless.scheduling.table import InvocationTable


def is_needed(record: InvocationRecord) -> bool:
    """Tell whether a result must be kept."""
    return record.pins > 0 or record.open_consumers > 0


def is_wanted(record: InvocationRecord) -> bool:
    """Tell whether an invocation should run, or run again."""
    if record.is_materialised:
        if record.pins > 0:
            return True
    elif not record.run.is_closed:
        return True
    return any(_is_asking(consumer) for consumer in record.consumers.values()) or any(
        _is_dependent(follower) for follower in record.followers.values()
    )


def _is_asking(consumer: InvocationRecord) -> bool:
    if consumer.is_saved:
        return False
    return consumer.phase in ("waiting", "ready") or (
        consumer.phase == "cancelling" and consumer.fate == "retry"
    )


def _is_dependent(follower: InvocationRecord) -> bool:
    """Tell whether a follower cannot do without its producer: unlike a consumer, it may run beside it."""
    return (follower.phase == "running" and not follower.is_saved) or _is_asking(follower)


class Lineage:
    """Carry out the rules above on the table."""

    def __init__(self, table: InvocationTable, pool: WorkerPool) -> None:
        self._table = table
        self._pool = pool

    def require(self, record: InvocationRecord, turn: Turn) -> None:
        """Put a record (back) to waiting, and with it every released producer, recursively.

        Pre: it is not open, or it just left its lane. A record with a producer that failed fails instead.
        """
        stack = [record]
        while stack:
            wanted = stack.pop()
            if wanted is not record and wanted.phase != "released":
                continue
            inputs = () if wanted.is_saved else wanted.inputs
            if any(need.phase in BROKEN_PHASES for need in inputs):
                self.fail(wanted, turn, told=None)
                continue
            self._table.enqueue(wanted, turn)
            for need in inputs:
                if need.phase == "released":
                    stack.append(need)
                else:
                    self.reclaim(need)

    def reclaim(self, record: InvocationRecord) -> None:
        """Let a cancelling invocation run again once it left its lane, since somebody wants it after all."""
        if record.phase == "cancelling" and record.fate == "release":
            record.fate = "retry"

    def revive(self, record: InvocationRecord, turn: Turn) -> None:
        """See to it that a record has, or gets, a result again: it was pinned or got a consumer."""
        if record.phase == "released":
            self.require(record, turn)
        else:
            self.reclaim(record)

    def feed(self, recalled: Iterable[InvocationRecord], turn: Turn) -> None:
        """Make again what calls lack that were cancelled to run again: they may have lost it while they ran."""
        for record in recalled:
            if _is_asking(record):
                for need in record.inputs:
                    if need.phase == "released":
                        self.require(need, turn)

    def retry(self, record: InvocationRecord, turn: Turn) -> None:
        """Run a record again that left its lane without a result."""
        if record.phase == "running":
            self._table.leave_followers(record, turn)
        self.require(record, turn)

    def lose(self, record: InvocationRecord, turn: Turn) -> None:
        """Drop a result whose bytes are gone. Pre: done. Consumers that run may still make it."""
        for consumer in (*record.consumers.values(), *record.followers.values()):
            if consumer.phase == "running" and not consumer.is_saved:
                consumer.has_lost_inputs = True
        self._drop(record, turn)
        self._table.take_back(record.consumers.values(), turn)
        self._table.take_back(record.followers.values(), turn)

    def fail(
        self, record: InvocationRecord, turn: Turn, told: RunRecord | None, phase: Phase = "failed"
    ) -> None:
        """End a record without a result for good, and all that depends on it.

        told: the run whose failure the control room knows of; for any other run AbandonInvocation is emitted.
        """
        touched: list[InvocationRecord] = []
        stack = [record]
        while stack:
            broken = stack.pop()
            if broken is not record and not _is_dependent(broken):
                continue
            touched.extend(broken.inputs)
            if broken.phase == "running" and broken is not record:
                self._table.cancel(broken, "fail", turn)
            elif broken.phase == "cancelling" and broken is not record:
                broken.fate = "fail"
            else:
                broken.is_publishing = False
                self._table.move(broken, phase if broken is record else "failed", turn)
            if broken.run is not told:
                turn.out.append(AbandonInvocation(broken.spec.id, broken.attempts, turn.cause))
            stack.extend(each for each in broken.consumers.values() if _is_asking(each))
            stack.extend(each for each in broken.followers.values() if _is_dependent(each))
        self.review((record, *touched), turn)

    def review(self, records: Iterable[InvocationRecord], turn: Turn) -> None:
        """Give up whatever of these is no longer needed, wanted or kept, and then look at their inputs."""
        stack = list(records)
        while stack:
            record = stack.pop()
            phase = record.phase
            if phase == "done":
                if not is_needed(record):
                    self._drop(record, turn)
            elif phase in ("waiting", "ready"):
                if not is_wanted(record):
                    record.awaits_room = False
                    self._table.move(record, "released", turn)
                    stack.extend(record.inputs)
            elif phase == "running":
                if not is_wanted(record):
                    self._table.cancel(record, "release", turn)
                    stack.extend(record.inputs)
            elif phase == "cancelling" and record.fate == "retry" and not is_wanted(record):
                record.fate = "release"
                stack.extend(record.inputs)
            if self._is_forgettable(record):
                self._table.forget(record, turn)
                stack.extend(record.inputs)

    def _is_forgettable(self, record: InvocationRecord) -> bool:
        if record.consumers or record.followers:
            return False
        if record.phase == "released":
            return True
        return record.phase in BROKEN_PHASES and record.run.is_closed

    def _drop(self, record: InvocationRecord, turn: Turn) -> None:
        self._pool.let_go(record)
        self._table.move(record, "released", turn)
        turn.out.append(DropResult(record.spec.id, turn.cause))
