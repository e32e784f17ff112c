"""Keep the results of finished invocations, and count who still mentions each tensor.

A result may mention a tensor that an earlier invocation made (a sampler's state carries some along), so
tensors are freed by mention count, not with the result of the invocation that made them.
"""

from __future__ import annotations

from collections.abc import Mapping

from comfyserverless.core.ids import InvocationId, TensorId, WorkerId
from comfyserverless.core.values import Output, TensorRef, Value, select, tensor_refs, transform

Freed = dict[WorkerId, list[TensorId]]


class ResultTable:
    """Own the value trees of results."""

    def __init__(self) -> None:
        #: all and only invocations whose result is materialised now.
        self._results: dict[InvocationId, Mapping[str, Value]] = {}
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
        self._results[invocation] = outputs
        holders: dict[WorkerId, None] = {}
        for ref in tensor_refs(dict(outputs)):
            self._mentions[ref.id] = self._mentions.get(ref.id, 0) + 1
            holders[ref.worker] = None
        return tuple(holders)

    def drop(self, invocation: InvocationId) -> Freed:
        """Forget a result if it is there; returns the tensors that nothing mentions any more, by owner."""
        freed: Freed = {}
        for ref in tensor_refs(dict(self._results.pop(invocation, {}))):
            left = self._mentions[ref.id] - 1
            if left:
                self._mentions[ref.id] = left
            else:
                del self._mentions[ref.id]
                freed.setdefault(ref.worker, []).append(ref.id)
        return freed

    def value(self, output: Output) -> Value:
        """Return what an output stands for. Raises KeyError if its invocation has no result now."""
        return select(self._results[output.invocation][output.port], output.path)

    def resolve(self, value: Value) -> Value:
        """Replace every Output in a value tree by its value. Raises KeyError as `value` does."""
        return transform(value, lambda leaf: self.value(leaf) if type(leaf) is Output else leaf)

    def mentions_worker(self, invocation: InvocationId, worker: WorkerId) -> bool:
        """Tell whether a result mentions tensors in this worker's arena."""
        outputs = self._results.get(invocation, {})
        return any(ref.worker == worker for ref in tensor_refs(dict(outputs)))


def unused(refs: list[TensorRef]) -> Freed:
    """Group tensors by owner: what to free when a result arrives that nobody wants."""
    freed: Freed = {}
    for ref in refs:
        freed.setdefault(ref.worker, []).append(ref.id)
    return freed
