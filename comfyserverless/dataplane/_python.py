"""Hold the pure-Python twins of `comfyserverless._native`, with identical results.

They serve installs without a compiler. The allocator gives the same offsets for the same calls; the flags
poll instead of sleeping in the kernel; `copy` lets numpy move the bytes, which also releases the GIL.
"""

from __future__ import annotations

import heapq
import struct
import time
from typing import Any

import numpy as np

_POLL_S = 0.0002
_WORD = struct.Struct("=I")


def _bytes_of(buffer: Any, *, writable: bool) -> memoryview:
    view = memoryview(buffer)
    if writable and view.readonly:
        raise BufferError("buffer is read-only")
    return view.cast("B")


def _range(view: memoryview, offset: int, size_bytes: int) -> memoryview:
    if not (0 <= offset <= len(view) and 0 <= size_bytes <= len(view) - offset):
        raise IndexError("range is outside of the buffer")
    return view[offset : offset + size_bytes]


def _word(view: memoryview, offset: int) -> memoryview:
    part = _range(view, offset, _WORD.size)
    if np.frombuffer(part, np.uint8).ctypes.data % _WORD.size:
        raise ValueError("flag is not aligned to 4 bytes")
    return part


def copy(target: Any, target_offset: int, source: Any, source_offset: int, size_bytes: int) -> None:
    """Copy bytes between two buffers without the interpreter lock. Raises IndexError outside of them."""
    out = _range(_bytes_of(target, writable=True), target_offset, size_bytes)
    data = _range(_bytes_of(source, writable=False), source_offset, size_bytes)
    np.copyto(np.frombuffer(out, np.uint8), np.frombuffer(data, np.uint8))


def load_flag(buffer: Any, offset: int) -> int:
    """Read the 32-bit flag at an offset."""
    value: int = _WORD.unpack(_word(_bytes_of(buffer, writable=False), offset))[0]
    return value


def publish_flag(buffer: Any, offset: int, value: int) -> None:
    """Set a flag; waiters see it at their next poll."""
    _WORD.pack_into(_word(_bytes_of(buffer, writable=True), offset), 0, value)


def wait_flag(buffer: Any, offset: int, value: int, timeout_s: float) -> bool:
    """Wait until a flag is at least `value`: True then, False after the timeout."""
    word = _word(_bytes_of(buffer, writable=False), offset)
    deadline_s = time.monotonic() + timeout_s
    while _WORD.unpack(word)[0] < value:
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


class _Blocks:
    """Hold the free blocks of one order; `pop` gives the lowest. A heap with lazy removal."""

    __slots__ = ("_heap", "_starts")

    def __init__(self) -> None:
        self._heap: list[int] = []
        #: all and only starts of free blocks of this order; the heap may hold stale ones besides
        self._starts: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._starts)

    def add(self, start: int) -> None:
        self._starts.add(start)
        heapq.heappush(self._heap, start)

    def discard(self, start: int) -> bool:
        if start not in self._starts:
            return False
        self._starts.remove(start)
        return True

    def pop(self) -> int:
        while True:
            start = heapq.heappop(self._heap)
            if self.discard(start):
                return start


class BuddyAllocator:
    """Divide [0, capacity_bytes) into blocks; the metadata is outside of the region.

    A request takes the lowest free block of the smallest sufficient order; the unused tail goes back at
    once. Raises ValueError unless min_block_bytes is a power of two and capacity_bytes a positive multiple.
    """

    def __init__(self, capacity_bytes: int, min_block_bytes: int = 512) -> None:
        if min_block_bytes <= 0 or min_block_bytes & (min_block_bytes - 1):
            raise ValueError(f"min_block_bytes must be a power of two, not {min_block_bytes}")
        if capacity_bytes <= 0 or capacity_bytes % min_block_bytes:
            raise ValueError(
                f"capacity_bytes must be a positive multiple of {min_block_bytes}, not {capacity_bytes}"
            )
        self.capacity_bytes = capacity_bytes
        self.min_block_bytes = min_block_bytes
        units = capacity_bytes // min_block_bytes
        self._free = [_Blocks() for _ in range(units.bit_length())]
        #: start -> length of every live block, in units of min_block_bytes
        self._live: dict[int, int] = {}
        self._used_units = 0
        self._release_range(0, units)

    @property
    def used_bytes(self) -> int:
        """Return the bytes of all live blocks, rounded up to min_block_bytes each."""
        return self._used_units * self.min_block_bytes

    @property
    def live_blocks(self) -> int:
        """Return how many blocks are live."""
        return len(self._live)

    @property
    def largest_free_bytes(self) -> int:
        """Return the size of the biggest block that `alloc` could return now."""
        orders = (order for order in reversed(range(len(self._free))) if self._free[order])
        return next(((1 << order) * self.min_block_bytes for order in orders), 0)

    def alloc(self, size_bytes: int) -> int | None:
        """Return the offset of a new block, or None if no free block is big enough."""
        units = max(-(-size_bytes // self.min_block_bytes), 1)
        for order in range((units - 1).bit_length(), len(self._free)):
            if self._free[order]:
                start = self._free[order].pop()
                self._live[start] = units
                self._used_units += units
                self._release_range(start + units, (1 << order) - units)
                return start * self.min_block_bytes
        return None

    def free(self, offset_bytes: int) -> None:
        """Give a block back. Raises ValueError unless a live block starts there."""
        start, rest = divmod(offset_bytes, self.min_block_bytes)
        if rest or start not in self._live:
            raise ValueError(f"no live block starts at offset {offset_bytes}")
        units = self._live.pop(start)
        self._used_units -= units
        self._release_range(start, units)

    def _release_range(self, start: int, length: int) -> None:
        while length:
            fits = 1 << (length.bit_length() - 1)
            size = min(fits, start & -start) if start else fits
            self._insert_merged(start, size.bit_length() - 1)
            start += size
            length -= size

    def _insert_merged(self, start: int, order: int) -> None:
        while order + 1 < len(self._free) and self._free[order].discard(start ^ (1 << order)):
            start &= ~(1 << order)
            order += 1
        self._free[order].add(start)
