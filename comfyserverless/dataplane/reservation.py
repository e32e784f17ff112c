"""Keep account of which parts of a sparse file have memory: taken before they are used, given back after.

A page of a file that was never reserved is found missing when it is touched; if the file system is full then,
the process dies of SIGBUS. So every block is reserved before it is handed out. Memory is taken and returned in
chunks: a chunk is *used* while a live block lies on it, else *idle* if it has memory, else *absent*. Taking
memory costs ten times what writing to it does, so idle memory goes back when it was idle for a while
(`trim`), or at once when there is much of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Protocol

CHUNK_BYTES = 2 << 20


class Backing(Protocol):
    """What has the memory; ranges are whole chunks, but for the last one of the file."""

    def take(self, offset_bytes: int, size_bytes: int) -> None:
        """Give a range memory. Raises OSError if there is none; what was taken of the range then may stay."""

    def give_back(self, offset_bytes: int, size_bytes: int) -> None:
        """Take the memory of a range away; it reads as zeros after. Raises OSError if that is impossible."""


class Reservation:
    """Own the chunks of one file.

    kept_bytes: how much idle memory is kept for ever, so that small blocks that come and go need not ask for it
    again; burst_bytes: how much is kept until the next trims (at least kept_bytes).
    """

    def __init__(self, backing: Backing, size_bytes: int, kept_bytes: int, burst_bytes: int = 0) -> None:
        self._backing = backing
        self._size_bytes = size_bytes
        self._kept_chunks = kept_bytes // CHUNK_BYTES
        self._burst_chunks = max(kept_bytes, burst_bytes) // CHUNK_BYTES
        count = -(-size_bytes // CHUNK_BYTES)
        #: by chunk: how many live blocks lie on it
        self._users = array("L", bytes(array("L").itemsize * count))
        #: by chunk: 1 for all and only chunks that have memory; every used chunk has
        self._has_memory = bytearray(count)
        #: by chunk: 1 if a block came or went there since the last trim
        self._is_fresh = bytearray(count)
        #: how many chunks have memory and no user; at most _burst_chunks while memory can be given back
        self._idle = 0

    @property
    def reserved_bytes(self) -> int:
        """Return how much memory the file has now (whole chunks)."""
        return sum(self._has_memory) * CHUNK_BYTES

    def reserve(self, offset_bytes: int, size_bytes: int) -> None:
        """Take memory for a block; where there is none left, idle memory is given back for it.

        Raises OSError if that is not enough; the block then counts as never reserved.
        """
        chunks = _chunks(offset_bytes, size_bytes)
        try:
            self._take_missing(chunks)
        except OSError:
            self._settle([chunk for chunk in self._idle_chunks() if chunk not in chunks], 0)
            try:
                self._take_missing(chunks)
            except OSError:
                self._settle(self._idle_chunks(), self._burst_chunks)
                raise
        for chunk in chunks:
            self._idle -= self._users[chunk] == 0
            self._users[chunk] += 1
            self._is_fresh[chunk] = 1

    def _take_missing(self, chunks: range) -> None:
        """Give memory to those that have none; all of them are idle then."""
        for first, end in _runs(chunk for chunk in chunks if not self._has_memory[chunk]):
            self._backing.take(*self._range(first, end))
            self._has_memory[first:end] = b"\1" * (end - first)
            self._idle += end - first

    def release(self, offset_bytes: int, size_bytes: int) -> None:
        """Count a block out; of too much idle memory, give back what was idle before first."""
        freed = []
        for chunk in _chunks(offset_bytes, size_bytes):
            self._users[chunk] -= 1
            if not self._users[chunk]:
                freed.append(chunk)
                self._is_fresh[chunk] = 1
        self._idle += len(freed)
        if self._idle > self._burst_chunks:
            just_freed = set(freed)
            older = [chunk for chunk in self._idle_chunks() if chunk not in just_freed]
            self._settle(freed + older, self._burst_chunks)

    def trim(self) -> None:
        """Give back what was idle since the last trim, but for what is kept."""
        if self._idle > self._kept_chunks:
            stale = [chunk for chunk in self._idle_chunks() if not self._is_fresh[chunk]]
            self._settle(stale, self._kept_chunks)
        self._is_fresh = bytearray(len(self._is_fresh))

    def _idle_chunks(self) -> list[int]:
        has_memory, users = self._has_memory, self._users
        return [chunk for chunk in range(len(has_memory)) if has_memory[chunk] and not users[chunk]]

    def _settle(self, candidates: list[int], allowed: int) -> None:
        """Give back the last candidates, which are idle, until no more than `allowed` chunks are idle."""
        excess = min(self._idle - allowed, len(candidates))
        for first, end in _runs(sorted(candidates[-excess:]) if excess > 0 else ()):
            try:
                self._backing.give_back(*self._range(first, end))
            except OSError:
                return  # this file system cannot make holes: its memory stays idle, and is used again
            self._has_memory[first:end] = bytes(end - first)
            self._idle -= end - first

    def _range(self, first: int, end: int) -> tuple[int, int]:
        start_bytes = first * CHUNK_BYTES
        return start_bytes, min(end * CHUNK_BYTES, self._size_bytes) - start_bytes


def _chunks(offset_bytes: int, size_bytes: int) -> range:
    return range(offset_bytes // CHUNK_BYTES, (offset_bytes + max(size_bytes, 1) - 1) // CHUNK_BYTES + 1)


def _runs(chunks: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Join ascending numbers into (first, end) of what is contiguous."""
    first = end = -1
    for chunk in chunks:
        if chunk != end:
            if end > first:
                yield first, end
            first = chunk
        end = chunk + 1
    if end > first:
        yield first, end
