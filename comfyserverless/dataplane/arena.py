"""Define what an arena is: one region of memory per worker that its peers read without asking.

The owner divides its region into blocks and writes each block once, before anybody is told of it. Peers
map the region read-only and copy blocks out (one-sided reads): the owner's process takes no part in it.
Whoever announces a block has finished writing it; that order is the only synchronisation needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

ALIGNMENT_BYTES = 512
"""Blocks start at multiples of this: enough for any dtype, vector load and copy engine."""

Bytes = npt.NDArray[np.uint8]


class LocalArena(ABC):
    """The region that this worker owns. Allocation is not thread-safe: its one user is the tensor store.

    path: what peers need to attach it; size_bytes: of the whole region.
    """

    path: str
    size_bytes: int

    @abstractmethod
    def allocate(self, size_bytes: int) -> int:
        """Return the offset of a new block. Raises CapacityError, naming the sizes, if there is no room."""

    @abstractmethod
    def release(self, offset_bytes: int) -> None:
        """Give a block back. Raises ValueError unless a live block starts there."""

    @abstractmethod
    def view(self, offset_bytes: int, size_bytes: int) -> Bytes:
        """Return the bytes of a block without a copy: [size_bytes] uint8; the array keeps the memory mapped."""

    @property
    @abstractmethod
    def used_bytes(self) -> int:
        """Return the bytes in live blocks."""

    @abstractmethod
    def close(self) -> None:
        """Remove the region's name; memory that is still viewed stays valid until its views are gone."""


class PeerArena(ABC):
    """Another worker's region, mapped read-only. Reads may come from any thread."""

    path: str
    size_bytes: int

    @abstractmethod
    def read_into(self, target: Any, offset_bytes: int, size_bytes: int) -> None:
        """Copy bytes at an offset of the region into a writable buffer, from its start on.

        Raises IndexError if the range is outside of the region or bigger than the target.
        """

    @abstractmethod
    def close(self) -> None:
        """Unmap the region; a later read raises ValueError."""
