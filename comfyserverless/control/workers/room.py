"""Let calls wait that found a worker's arena full of what others use: that is no fault of their prompts.

A call waits until a good part of what was held there is given back. If nothing at all happens for some time,
the one that came first runs once more, for the last time: all that is held then waits for calls that wait here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from comfyserverless.control.results import ResultTable
from comfyserverless.core.ids import InvocationId, WorkerId
from comfyserverless.scheduling.events import InvocationSpec

_PART = 8
_PATIENCE_S = 2.0


class RoomQueue:
    """Hold all and only the calls that wait for room.

    results: says how much of an arena they take; let_in: run these calls again.
    """

    def __init__(self, results: ResultTable, let_in: Callable[[Sequence[InvocationId]], None]) -> None:
        self._held_bytes = results.bytes_on
        self._let_in = let_in
        #: where they found no room, and what was held there then; first come first
        self._waiting: dict[InvocationId, tuple[WorkerId, int]] = {}
        #: those that will not wait once more
        self._last: set[InvocationId] = set()
        #: of those that wait, the ones that go on from where they are: nodes of packs, which run only once
        self._running: dict[InvocationId, asyncio.Future[None]] = {}
        self._moves = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def admit(self, call: InvocationSpec, worker: WorkerId) -> bool:
        """Let a call wait; False if that is of no use: only its inputs are held, or it has waited in vain."""
        held_bytes = self._held_bytes(worker)
        if call.id in self._last or held_bytes <= self._held_bytes(worker, call.needs):
            return False
        self._waiting[call.id] = worker, held_bytes
        self._watch()
        return True

    async def wait(self, call: InvocationSpec, worker: WorkerId) -> bool:
        """Let a call that runs wait for room until it is to try again; False if that is of no use."""
        if not self.admit(call, worker):
            return False
        going_on = self._running[call.id] = asyncio.get_running_loop().create_future()
        try:
            await going_on
            return True
        finally:
            del self._running[call.id]
            self._waiting.pop(call.id, None)

    def moved(self) -> None:
        """Take note that something happened, somewhere."""
        self._moves += 1

    def freed(self, worker: WorkerId) -> None:
        """Take note that a worker's arena was told to free something."""
        if self._waiting:
            left_bytes = self._held_bytes(worker)
            self._release(
                [
                    invocation
                    for invocation, (where, held_bytes) in self._waiting.items()
                    if where == worker and left_bytes <= held_bytes - held_bytes // _PART
                ]
            )

    def lost(self, worker: WorkerId) -> None:
        """Let in what waits for a worker that is gone."""
        self._release([each for each, (where, _) in self._waiting.items() if where == worker])

    def forget(self, invocation: InvocationId) -> None:
        """Forget a call that ended."""
        self._waiting.pop(invocation, None)
        self._last.discard(invocation)

    def _release(self, invocations: Sequence[InvocationId]) -> None:
        for invocation in invocations:
            del self._waiting[invocation]
            if (going_on := self._running.get(invocation)) is not None and not going_on.done():
                going_on.set_result(None)
        again = [each for each in invocations if each not in self._running]
        if again:
            self._let_in(again)

    def _watch(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(_PATIENCE_S, self._look, self._moves)

    def _look(self, moves: int) -> None:
        """Let the first one in for the last time if nothing happened since the last look."""
        self._timer = None
        if self._waiting and moves == self._moves:
            first = next(iter(self._waiting))
            self._last.add(first)
            self._release([first])
        self._watch()
