"""Allocate one block of memory for the tensors of a layer, and cut it into their views.

A block of the CPU is a mapping of its own: when its last view is gone, its pages go back to the system. The
heap would keep them, and a worker that evicts would grow all the same.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

ALIGN_BYTES = 64
_MAPPED_FROM_BYTES = 1 << 17


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a tensor lies in its layer's block."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    offset_bytes: int

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the tensor alone."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize

    def view(self, block: Tensor) -> Tensor:
        """Return the tensor in a block [bytes] uint8; it shares the block's memory and keeps it alive."""
        return block[self.offset_bytes : self.offset_bytes + self.size_bytes].view(self.dtype).view(self.shape)


def place(tensors: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> tuple[list[Spot], int]:
    """Return a spot for each (shape, type), one after the other, and the bytes of the block for all of them."""
    spots: list[Spot] = []
    end_bytes = 0
    for shape, dtype in tensors:
        spots.append(Spot(shape, dtype, end_bytes))
        end_bytes += -(-spots[-1].size_bytes // ALIGN_BYTES) * ALIGN_BYTES
    return spots, end_bytes


def allocate(size_bytes: int) -> Tensor:
    """Return a block [size_bytes] uint8 on the CPU. Raises MemoryError, or torch's error, if there is none."""
    if size_bytes < _MAPPED_FROM_BYTES:
        return torch.empty(size_bytes, dtype=torch.uint8)
    try:
        region = mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as exc:
        raise MemoryError(f"cannot map {size_bytes} bytes for weights: {exc.strerror}") from exc
    region.madvise(mmap.MADV_HUGEPAGE)
    # Through numpy: its array holds the mapping as long as a tensor lives, torch.frombuffer does not.
    return torch.from_numpy(np.frombuffer(region, dtype=np.uint8))
