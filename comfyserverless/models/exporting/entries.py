"""Say what a file will hold before it is made: type and shape of each tensor, and how to make it.

So a model is never in memory as a whole: what writes it makes one tensor after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file; make: returns it on the CPU, of this type and with as many numbers."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    make: Callable[[], Tensor]

    @property
    def size_bytes(self) -> int:
        """Return the bytes that it takes up in the file."""
        return math.prod(self.shape) * self.dtype.itemsize

    def reshaped(self, shape: tuple[int, ...]) -> Entry:
        """Return the same numbers under another shape."""
        return replace(self, shape=shape)

    def turned(self) -> Entry:
        """Return a matrix with its two sides swapped."""
        return Entry(self.dtype, self.shape[::-1], lambda: self.make().reshape(self.shape).t())


def joined(parts: Sequence[Entry]) -> Entry:
    """Return entries behind each other along the first side, in the finest of their types."""
    dtype = parts[0].dtype
    for part in parts[1:]:
        dtype = finer(dtype, part.dtype)
    first, *rest = parts[0].shape
    rows = first + sum(part.shape[0] for part in parts[1:])
    return Entry(
        dtype, (rows, *rest), lambda: torch.cat([part.make().reshape(part.shape).to(dtype) for part in parts])
    )


def constant(tensor: Tensor) -> Entry:
    """Return an entry of a tensor that is there."""
    return Entry(tensor.dtype, tuple(tensor.shape), lambda: tensor)


def finer(one: torch.dtype, other: torch.dtype) -> torch.dtype:
    """Return the floating point type of the two that has more digits; the first of equals."""
    return other if torch.finfo(other).eps < torch.finfo(one).eps else one
