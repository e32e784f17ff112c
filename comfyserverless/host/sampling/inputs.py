"""Hold inputs of a network for batches, as `comfy.conds` does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor


def _fit_batch(value: Tensor, batch_size: int) -> Tensor:
    if value.shape[0] < batch_size:
        value = value.repeat(math.ceil(batch_size / value.shape[0]), *[1] * (value.ndim - 1))
    return value[:batch_size]


class CONDRegular:
    """A tensor of which each item of the batch has one."""

    def __init__(self, cond: Any) -> None:
        self.cond = cond

    def _copy_with(self, cond: Any) -> Self:
        return type(self)(cond)

    def process_cond(self, batch_size: int, **more: Any) -> Self:
        """Return it for a batch."""
        return self._copy_with(_fit_batch(self.cond, batch_size))

    def can_concat(self, other: Any) -> bool:
        """Tell whether another one has the same shape."""
        return tuple(self.cond.shape) == tuple(other.cond.shape)

    def concat(self, others: Sequence[Any]) -> Any:
        """Join this one and others along the batch."""
        return torch.cat([self.cond, *(other.cond for other in others)])

    def size(self) -> list[int]:
        """Return the shape."""
        return list(self.cond.size())


class CONDNoiseShape(CONDRegular):
    """A tensor of the latent's size, which is cut like it."""

    def process_cond(self, batch_size: int, area: Sequence[int] | None = None, **more: Any) -> Self:
        """Return it for a batch; area: (height, width, top, left) in cells."""
        data = self.cond
        if area is not None:
            dims = len(area) // 2
            for axis in range(dims):
                data = data.narrow(axis + 2, area[axis + dims], area[axis])
        return self._copy_with(_fit_batch(data, batch_size))


class CONDCrossAttn(CONDRegular):
    """Hidden states [B, T, D]; shorter ones are repeated to a common length."""

    def can_concat(self, other: Any) -> bool:
        """Tell whether another one can be brought to the same length by a few repeats."""
        one, two = self.cond.shape, other.cond.shape
        if one == two:
            return True
        if one[0] != two[0] or one[2] != two[2]:
            return False
        return math.lcm(int(one[1]), int(two[1])) <= 4 * min(int(one[1]), int(two[1]))

    def concat(self, others: Sequence[Any]) -> Any:
        """Join this one and others."""
        parts = [self.cond, *(other.cond for other in others)]
        length = math.lcm(*(part.shape[1] for part in parts))
        return torch.cat([part.repeat(1, length // part.shape[1], 1) for part in parts])


class CONDConstant(CONDRegular):
    """A value that is the same for the whole batch."""

    def process_cond(self, batch_size: int, **more: Any) -> Self:
        """Return it."""
        return self._copy_with(self.cond)

    def can_concat(self, other: Any) -> bool:
        """Tell whether another one is equal."""
        return bool(self.cond == other.cond)

    def concat(self, others: Sequence[Any]) -> Any:
        """Return the value."""
        return self.cond

    def size(self) -> list[int]:
        """Return a shape of one."""
        return [1]


class CONDList(CONDRegular):
    """Several tensors, one for each place."""

    def process_cond(self, batch_size: int, **more: Any) -> Self:
        """Return them for a batch."""
        return self._copy_with([_fit_batch(each, batch_size) for each in self.cond])

    def can_concat(self, other: Any) -> bool:
        """Tell whether others have the same shapes."""
        return bool([each.shape for each in self.cond] == [each.shape for each in other.cond])

    def concat(self, others: Sequence[Any]) -> Any:
        """Join place by place."""
        return [torch.cat([each, *(other.cond[at] for other in others)]) for at, each in enumerate(self.cond)]

    def size(self) -> list[int]:
        """Return a shape that holds as many numbers."""
        return [1, sum(each.numel() for each in self.cond)]
