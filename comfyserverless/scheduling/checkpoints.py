"""Decide which states of a walk are written down, and how long what was written is kept.

A worker takes its arena with it, so without checkpoints a walk over noise levels starts again from its first
step when its worker dies.

- A checkpoint is written of the result of a step when, without it, its loss would have k steps taken again:
  the steps since the newest checkpoint that it builds on. k is set, or weighed by the estimates: so many steps
  that checkpoints take a small share of the time. So no loss of a worker costs a walk more than k steps: the
  k - 1 since the checkpoint, and the one that ran.
- Only the newest checkpoint of a walk is kept: what is behind it cannot be needed to go on.
- Checkpoints go when their run is closed. Results that survive it, in a cache, are rebuilt without.
- One that cannot be read is dropped, and its step is run again by lineage, as if it had never been.
"""

from __future__ import annotations

from comfyserverless.scheduling.estimates import Estimates
from comfyserverless.scheduling.instructions import DropCheckpoint
from comfyserverless.scheduling.invocations import OPEN_PHASES, InvocationRecord, RunRecord, Turn

#: forgotten: its checkpoint goes with it
_KEEPING = OPEN_PHASES | {"forgotten"}


class Checkpoints:
    """Carry out the rules above.

    steps: k; 0 for no checkpoints, None to weigh.
    """

    def __init__(self, steps: int | None, estimates: Estimates) -> None:
        self._steps = steps
        self._estimates = estimates
        #: the largest k that was applied
        self.largest_steps = 0

    def is_due(self, record: InvocationRecord) -> bool:
        """Count what a record that starts now puts at risk, and tell whether its result is to be saved.

        Pre: it has all its inputs, or a checkpoint.
        """
        if record.is_saved or self._steps == 0:
            return False
        behind = (0 if need.is_saved else need.steps_at_risk for need in record.inputs)
        record.steps_at_risk = max(behind, default=0) + record.spec.is_step
        if not record.spec.is_step or record.run.is_closed:
            return False
        steps = self._estimates.checkpoint_steps(record.spec) if self._steps is None else self._steps
        self.largest_steps = max(self.largest_steps, steps)
        return record.steps_at_risk >= steps

    def keep(self, record: InvocationRecord, turn: Turn) -> None:
        """Note that a checkpoint of a result was written. Pre: it is done. It replaces those it builds on."""
        record.is_saved = True
        for older in _behind(record):
            if older.phase not in OPEN_PHASES and not older.pins and not older.open_consumers:
                self.drop(older, turn)

    def drop(self, record: InvocationRecord, turn: Turn) -> None:
        """Give the checkpoint of a record up. Pre: it has one, and is not open or about to be run again."""
        record.is_saved = False
        turn.out.append(DropCheckpoint(record.spec.id, turn.cause))

    def drop_if_over(self, record: InvocationRecord, turn: Turn) -> None:
        """Give the checkpoint of a record up if its run is closed and nobody is about to read it."""
        if record.is_saved and record.run.is_closed and record.phase not in _KEEPING:
            self.drop(record, turn)

    def close(self, run: RunRecord, turn: Turn) -> None:
        """Give up the checkpoints of a run that was closed."""
        for record in run.members.values():
            self.drop_if_over(record, turn)


def _behind(record: InvocationRecord) -> list[InvocationRecord]:
    """List the newest saved records that a record builds on, within its own walk."""
    found: list[InvocationRecord] = []
    seen: set[int] = {record.order}
    stack = [record]
    while stack:
        for need in stack.pop().inputs:
            is_same_walk = need.run is record.run and need.spec.node == record.spec.node
            if not is_same_walk or need.order in seen:
                continue
            seen.add(need.order)
            if need.is_saved:
                found.append(need)
            else:
                stack.append(need)
    return found
