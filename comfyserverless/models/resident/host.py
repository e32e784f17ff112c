"""Keep blocks of recently used models in host memory, as they go to the device, within a byte budget."""

from __future__ import annotations

from torch import Tensor

from comfyserverless.residency.lru import LruBudget
from comfyserverless.residency.policy import LayerKey


class HostTier:
    """Blocks by layer; whole models leave, the least recently used first. Not safe for several threads.

    A model that does not fit keeps as many of its layers as do.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget = LruBudget(budget_bytes)
        #: blocks of all and only models that the budget calls resident, by number of the layer
        self._blocks: dict[str, dict[int, Tensor]] = {}

    @property
    def budget_bytes(self) -> int:
        """Return how many bytes it may hold."""
        return self._budget.budget_bytes

    @property
    def models(self) -> int:
        """Return of how many models it has blocks."""
        return len(self._blocks)

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all blocks."""
        return self._budget.total_bytes

    def get(self, key: LayerKey) -> Tensor | None:
        """Return a block, which makes its model the most recently used; None if it is not here."""
        model, layer = key
        blocks = self._blocks.get(model)
        if blocks is None:
            return None
        self._budget.use(model, sum(block.nbytes for block in blocks.values()))
        return blocks.get(layer)

    def make_room(self, key: LayerKey, size_bytes: int) -> bool:
        """Drop other models until a block of `key` fits; returns whether it may be kept. `put` must follow."""
        model = key[0]
        total_bytes = size_bytes + sum(block.nbytes for block in self._blocks.get(model, {}).values())
        if total_bytes > self._budget.budget_bytes:
            return False
        for gone in self._budget.use(model, total_bytes):
            del self._blocks[gone]
        self._blocks.setdefault(model, {})
        return True

    def put(self, key: LayerKey, block: Tensor) -> None:
        """Keep a block for which `make_room` made room."""
        self._blocks[key[0]][key[1]] = block

    def forget(self, model: str) -> None:
        """Drop all blocks of a model, if there are any."""
        if self._blocks.pop(model, None) is not None:
            self._budget.remove(model)

    def clear(self) -> None:
        """Drop everything."""
        for model in list(self._blocks):
            self.forget(model)
