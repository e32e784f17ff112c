"""Keep the results of finished invocations, and count who still mentions each tensor.

A result may mention a tensor that an earlier invocation made (a sampler's state carries some along), so
tensors are freed by mention count, not with the result of the invocation that made them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from comfyserverless.core.ids import InvocationId, TensorId, WorkerId
from comfyserverless.core.values import (
    ObjectRef,
    Output,
    TensorRef,
    Value,
    held_refs,
    replace_outputs,
    select,
)

Freed = dict[WorkerId, list[TensorId]]

Held = TensorRef | ObjectRef
"""What a result keeps in a process: both kinds are mentioned, counted and freed alike."""


class ResultTable:
    """Own the value trees of results."""

    def __init__(self) -> None:
        #: all and only invocations whose result is materialised now, with the tensors and objects it mentions.
        self._results: dict[InvocationId, tuple[Mapping[str, Value], list[Held]]] = {}
        #: tensor -> mentions over all results above, never 0.
        self._mentions: dict[TensorId, int] = {}

    def __contains__(self, invocation: InvocationId) -> bool:
        return invocation in self._results

    def __len__(self) -> int:
        return len(self._results)

    def tensor_count(self) -> int:
        """Return how many tensors results mention."""
        return len(self._mentions)

    def put(self, invocation: InvocationId, outputs: Mapping[str, Value]) -> tuple[WorkerId, ...]:
        """Store a result; returns the workers that hold its tensors, in first-mention order."""
        refs = held_refs(outputs)
        self._results[invocation] = (outputs, refs)
        holders: dict[WorkerId, None] = {}
        for ref in refs:
            self._mentions[ref.id] = self._mentions.get(ref.id, 0) + 1
            holders[ref.worker] = None
        return tuple(holders)

    def drop(self, invocation: InvocationId) -> Freed:
        """Forget a result if it is there; returns the tensors that nothing mentions any more, by owner."""
        freed: Freed = {}
        for ref in self._results.pop(invocation, ({}, []))[1]:
            left = self._mentions[ref.id] - 1
            if left:
                self._mentions[ref.id] = left
            else:
                del self._mentions[ref.id]
                freed.setdefault(ref.worker, []).append(ref.id)
        return freed

    def value(self, output: Output) -> Value:
        """Return what an output stands for. Raises KeyError if its invocation has no result now."""
        return select(self._results[output.invocation][0][output.port], output.path)

    def resolve(self, value: Value) -> Value:
        """Replace every Output in a value tree by its value. Raises KeyError as `value` does."""
        return replace_outputs(value, self.value)

    def mentions_worker(self, invocation: InvocationId, worker: WorkerId) -> bool:
        """Tell whether a result mentions tensors in this worker's arena."""
        return any(ref.worker == worker for ref in self._results.get(invocation, ({}, []))[1])

    def bytes_on(self, worker: WorkerId, among: Iterable[InvocationId] | None = None) -> int:
        """Return how much of a worker's arena results take, all or those of some invocations."""
        chosen = self._results if among is None else among
        refs = (ref for each in chosen for ref in self._results.get(each, ({}, []))[1])
        tensors = {ref.id: ref.size_bytes for ref in refs if type(ref) is TensorRef and ref.worker == worker}
        return sum(tensors.values())


class ResultWaiters:
    """Know who awaits the next outcome of an invocation."""

    def __init__(self) -> None:
        self._futures: dict[InvocationId, list[asyncio.Future[None]]] = {}

    async def outcome(self, invocation: InvocationId) -> None:
        """Return when the invocation is woken for. Raises CancelledError when it is given up."""
        future = asyncio.get_running_loop().create_future()
        self._futures.setdefault(invocation, []).append(future)
        await future

    def wake(self, invocation: InvocationId) -> None:
        """Let all go on that await an outcome: there is one."""
        for future in self._futures.pop(invocation, ()):
            if not future.done():
                future.set_result(None)

    def give_up(self, invocation: InvocationId) -> None:
        """Cancel all that await an outcome: there will be none."""
        for future in self._futures.pop(invocation, ()):
            future.cancel()


def unused(refs: list[Held]) -> Freed:
    """Group tensors and objects by owner: what to free when a result arrives that nobody wants."""
    freed: Freed = {}
    for ref in refs:
        freed.setdefault(ref.worker, []).append(ref.id)
    return freed
