"""Define what an arena is: one region of memory per worker that its peers read without asking.

The owner divides its region into blocks and writes each block once, before anybody is told of it. Peers
copy blocks out (one-sided reads): the owner's process takes no part in it. Whoever announces a block has
finished writing it. It is announced by a message, or by a *flag*: a counter in the region that only grows, on
which peers wait. There are two kinds of arena, with one contract (tests/support/arena_contract.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch

from comfyserverless.core.errors import CapacityError, NoRoomError

ALIGNMENT_BYTES = 512
"""Blocks start at multiples of this: enough for any dtype, vector load and copy engine."""

LARGEST_FLAG = (1 << 32) - 1

Block = Any
"""The bytes of a block, as an object that can be weakly referenced; the tensors made of it keep it alive."""


class LocalArena(ABC):
    """The region that this worker owns. Allocation is not thread-safe: its one user is the tensor store.

    path: what peers attach it by; size_bytes: of the whole region; device: where its tensors are.
    reads_into_arena: peers' blocks can be read only into blocks of this arena (else: into any memory).
    device_bytes: what the region takes of the memory that the budget of weights counts. Regions in shared
    memory take nothing of it, also where models compute in host memory: sizing gives results and weights
    shares of their own there, and what of a region holds no block costs nothing.
    """

    path: str
    size_bytes: int
    device: torch.device
    reads_into_arena: bool
    device_bytes: int = 0

    @abstractmethod
    def allocate(self, size_bytes: int) -> int:
        """Return the offset of a new block. Raises CapacityError, naming the sizes, if there is no room."""

    @abstractmethod
    def release(self, offset_bytes: int) -> None:
        """Give a block back. Raises ValueError unless a live block starts there."""

    def trim(self) -> None:  # noqa: B027 - a region that is fixed has nothing to give
        """Give memory back to the system that was idle since the last trim. Not thread-safe."""

    @abstractmethod
    def view(self, offset_bytes: int, size_bytes: int) -> Block:
        """Return the bytes of a block without a copy, as a new object that keeps the memory mapped."""

    @abstractmethod
    def tensor(self, block: Block) -> torch.Tensor:
        """Return a [size_bytes] uint8 tensor on the arena's device, whose storage keeps `block` alive."""

    @abstractmethod
    def write(self, offset_bytes: int, data: bytes) -> None:
        """Write a few bytes; readers that see a flag which is published after this see them."""

    @abstractmethod
    def flush(self) -> None:
        """Return once what this thread wrote, and started to read, is done: it may be announced then."""

    @abstractmethod
    def allocate_flag(self) -> int:
        """Return the offset of a new flag; its value is 0. Raises CapacityError if there is no room."""

    @abstractmethod
    def release_flag(self, offset_bytes: int) -> None:
        """Give a flag back. Raises ValueError unless a live flag is there."""

    @abstractmethod
    def publish(self, flag_bytes: int, value: int) -> None:
        """Set the flag at an offset to a value greater than before and wake all that wait for it.

        What this worker wrote before is visible to whoever sees the value.
        """

    @abstractmethod
    def attach(self, path: str) -> PeerArena:
        """Return a peer's region, or this one as peers see it. Raises OSError if it cannot be reached."""

    @property
    @abstractmethod
    def used_bytes(self) -> int:
        """Return the bytes in live blocks."""

    @property
    @abstractmethod
    def live_blocks(self) -> int:
        """Return how many blocks are live."""

    @property
    @abstractmethod
    def largest_free_bytes(self) -> int:
        """Return the size of the biggest block that can be allocated now."""

    @abstractmethod
    def close(self) -> None:
        """Give the region up; memory that is still viewed stays valid where the kind of arena allows it.

        Closing twice is allowed.
        """


def no_room(arena: LocalArena, size_bytes: int, largest_bytes: int) -> CapacityError:
    """Say that a block does not fit: NoRoomError, unless it never would. largest_bytes: of what is free."""
    kind = NoRoomError if size_bytes <= arena.size_bytes else CapacityError
    return kind(
        f"arena is full: a block of {size_bytes} bytes does not fit,"
        f" {arena.used_bytes} of {arena.size_bytes} bytes are in use,"
        f" the largest free block has {largest_bytes}; allow more (--arena-memory)"
    )


class PeerArena(ABC):
    """Another worker's region, which is only read. Reads may come from any thread."""

    path: str

    @abstractmethod
    def read_into(self, target: Block, offset_bytes: int, size_bytes: int) -> None:
        """Copy bytes at an offset of the region into a block, from its start on.

        Raises IndexError if the range is outside of the region or bigger than the target, and ValueError after
        close.
        """

    @abstractmethod
    def read(self, offset_bytes: int, size_bytes: int) -> bytes:
        """Return a few bytes. Raises like `read_into`."""

    @abstractmethod
    def load_flag(self, flag_bytes: int) -> int:
        """Return the value of the flag at an offset. Raises ValueError after close."""

    @abstractmethod
    def wait_flag(self, flag_bytes: int, value: int, timeout_s: float) -> bool:
        """Wait until a flag is at least `value`: True then, False after the timeout.

        Callers wait in short slices and look around in between (see `publication.wait`): nobody wakes those
        who wait for a dead worker. Raises ValueError after close.
        """

    @abstractmethod
    def is_owner_alive(self) -> bool:
        """Return False once the owner is known to be gone; True does not prove that it is there."""

    def note_owner_gone(self) -> None:  # noqa: B027 - most kinds see it for themselves
        """Take note that the owner is gone: those who wait for it shall not wait longer."""

    @abstractmethod
    def close(self) -> None:
        """Let the region go; a later read raises ValueError."""
