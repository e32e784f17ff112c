"""Own the files that hold checkpoints: copies of walks' states that outlive the worker which wrote them.

One file for each, in the server's scratch folder (memory, not disk, where there is some). This process makes
the file and removes it; workers only fill and read it, so that whoever dies at whatever moment, no file is left
behind that nobody knows of. All files together stay within a budget: before a worker writes one, the most that
it may write is set aside.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from comfyserverless.control.views import RecoveryView
from comfyserverless.core.ids import InvocationId
from comfyserverless.core.messages import CheckpointOrder, InvocationDone
from comfyserverless.scheduling.instructions import StartInvocation

_LEAST_LIMIT_BYTES = 4096
_SHARE = 2  # one checkpoint may take this part of what is left of the budget


class CheckpointFiles:
    """Keep at most one checkpoint of each invocation. folder: private; budget_bytes: of all files."""

    def __init__(self, folder: Path, budget_bytes: int) -> None:
        self._folder = folder
        self._budget_bytes = budget_bytes
        self._numbers = itertools.count()
        #: all and only files that are ordered and not reported on yet, with what is set aside for each
        self._ordered: dict[InvocationId, tuple[Path, int]] = {}
        #: all and only files that hold a checkpoint, with their sizes
        self._written: dict[InvocationId, tuple[Path, int]] = {}

    @property
    def used_bytes(self) -> int:
        """Return the bytes of all checkpoints."""
        return sum(size_bytes for _, size_bytes in self._written.values())

    def __len__(self) -> int:
        return len(self._written)

    def order(self, invocation: InvocationId) -> CheckpointOrder | None:
        """Make a file for a checkpoint; None if the budget is spent, or there is no room for a file."""
        set_aside_bytes = sum(limit_bytes for _, limit_bytes in self._ordered.values())
        limit_bytes = (self._budget_bytes - self.used_bytes - set_aside_bytes) // _SHARE
        if limit_bytes < _LEAST_LIMIT_BYTES:
            return None
        path = self._folder / f"{next(self._numbers)}.checkpoint"
        try:
            path.touch(mode=0o600, exist_ok=False)
        except OSError:
            return None
        self._ordered[invocation] = path, limit_bytes
        return CheckpointOrder(str(path), limit_bytes)

    def written(self, invocation: InvocationId, size_bytes: int) -> bool:
        """Take note of what came of an order, if there is one: a checkpoint of so many bytes, or none (0).

        Returns whether there is a checkpoint now that was not there before.
        """
        path, _ = self._ordered.pop(invocation, (None, 0))
        if path is None:
            return False
        if size_bytes == 0:
            path.unlink(missing_ok=True)
            return False
        self._written[invocation] = path, size_bytes
        return True

    def path(self, invocation: InvocationId) -> str:
        """Return where a checkpoint is. Raises KeyError if there is none."""
        return str(self._written[invocation][0])

    def drop(self, invocation: InvocationId) -> None:
        """Remove a checkpoint, if there is one."""
        if invocation in self._written:
            self._written.pop(invocation)[0].unlink(missing_ok=True)


class Recovery:
    """Give orders about checkpoints, and count what losses of workers cost."""

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files
        #: steps that were started at least once and are not forgotten
        self._started: set[InvocationId] = set()
        self._steps_rerun = 0
        self._restored = 0
        self.workers_lost = 0

    def prepare(self, start: StartInvocation, is_step: bool) -> tuple[CheckpointOrder | None, str]:
        """Return what a worker is told: where to write a checkpoint, and where to read one (empty: nowhere)."""
        if start.is_restored:
            self._restored += 1
            return None, self._files.path(start.invocation)
        if is_step:
            self._steps_rerun += start.invocation in self._started
            self._started.add(start.invocation)
        return self._files.order(start.invocation) if start.is_saved else None, ""

    def saved_s(self, done: InvocationDone) -> float | None:
        """Return how long writing the checkpoint took that came with a result, None if there is none."""
        has_one = self._files.written(done.invocation, done.checkpoint_bytes)
        return done.checkpoint_s if has_one else None

    def left(self, invocation: InvocationId) -> None:
        """Take note that an invocation left its lane: an order that was not reported on is void."""
        self._files.written(invocation, 0)

    def drop(self, invocation: InvocationId) -> None:
        """Remove a checkpoint, if there is one."""
        self._files.drop(invocation)

    def forget(self, invocation: InvocationId) -> None:
        """Forget an invocation altogether."""
        self._files.drop(invocation)
        self._started.discard(invocation)

    def view(self, checkpoint_steps: int) -> RecoveryView:
        """Describe the state of things; checkpoint_steps: the most steps that were put between two."""
        return RecoveryView(
            self.workers_lost,
            self._steps_rerun,
            self._restored,
            len(self._files),
            self._files.used_bytes,
            checkpoint_steps,
        )
