"""Keep an arena in a file that every process on this host can map (CPU machines, and staging on others).

The file lives in /dev/shm, or on a real file system where /dev/shm has too little room. Its memory is taken
from the file system in steps, just before blocks are handed out: a full file system is a CapacityError and
never a SIGBUS. It goes back when the arena is empty, so that one big prompt does not cost memory for ever.
`multiprocessing.shared_memory` is not used because on Python 3.11 a process that merely attached a segment
removes it when it exits.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from comfyserverless.core.errors import CapacityError
from comfyserverless.dataplane import _fast
from comfyserverless.dataplane.arena import ALIGNMENT_BYTES, Bytes, LocalArena, PeerArena

_RESERVE_STEP_BYTES = 8 << 20
_KEPT_BYTES = 64 << 20  # how much an empty arena keeps, so that small prompts need not ask for it again


def choose_path(preferred: str, fallback: str, size_bytes: int) -> str:
    """Return `preferred` if its file system has room for size_bytes more, else `fallback` (if there is one)."""
    if not fallback:
        return preferred
    stats = os.statvfs(Path(preferred).parent)
    return preferred if stats.f_bavail * stats.f_frsize >= size_bytes else fallback


class SharedMemoryArena(LocalArena):
    """Own an arena file.

    Creates `path`; raises FileExistsError if it exists (a stale file is the control process's to remove), and
    CapacityError if the file system cannot hold it. The file is locked (flock) while its owner lives.
    size_bytes is rounded up to whole pages. populated: touch all pages now (about 1 s per GB) instead of in
    steps while the arena fills.
    """

    def __init__(self, path: str, size_bytes: int, *, populated: bool = False) -> None:
        self.path = path
        self.size_bytes = max(-(-size_bytes // mmap.PAGESIZE), 1) * mmap.PAGESIZE
        self._blocks = _fast.BuddyAllocator(self.size_bytes, ALIGNMENT_BYTES)
        self._reserved_bytes = 0
        self._kept_bytes = self.size_bytes if populated else min(_KEPT_BYTES, self.size_bytes)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            os.ftruncate(self._fd, self.size_bytes)
            if populated:
                self._reserve(self.size_bytes)
            flags = mmap.MAP_SHARED | (mmap.MAP_POPULATE if populated else 0)
            self._map = mmap.mmap(self._fd, self.size_bytes, flags=flags)
            self._flat = np.frombuffer(self._map, np.uint8)
        except BaseException:
            self.close()
            raise

    def allocate(self, size_bytes: int) -> int:
        """See LocalArena."""
        offset_bytes = self._blocks.alloc(size_bytes)
        if offset_bytes is None:
            raise CapacityError(
                f"arena is full: a block of {size_bytes} bytes does not fit,"
                f" {self.used_bytes} of {self.size_bytes} bytes are in use,"
                f" the largest free block has {self._blocks.largest_free_bytes}"
            )
        try:
            self._reserve(offset_bytes + size_bytes)
        except CapacityError:
            self._blocks.free(offset_bytes)
            raise
        return offset_bytes

    def release(self, offset_bytes: int) -> None:
        """See LocalArena."""
        self._blocks.free(offset_bytes)
        if not self._blocks.used_bytes and self._reserved_bytes > self._kept_bytes:
            self._give_back()

    def view(self, offset_bytes: int, size_bytes: int) -> Bytes:
        """See LocalArena."""
        return self._flat[offset_bytes : offset_bytes + size_bytes]

    @property
    def used_bytes(self) -> int:
        """See LocalArena."""
        return self._blocks.used_bytes

    def close(self) -> None:
        """See LocalArena. Closing twice is allowed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            Path(self.path).unlink(missing_ok=True)

    def _give_back(self) -> None:
        """Return memory of an empty arena to the file system; one that cannot make holes keeps it."""
        with contextlib.suppress(OSError):
            self._map.madvise(mmap.MADV_REMOVE, self._kept_bytes, self._reserved_bytes - self._kept_bytes)
            self._reserved_bytes = self._kept_bytes

    def _reserve(self, end_bytes: int) -> None:
        """Take memory for [0, end_bytes) from the file system, in steps."""
        if end_bytes <= self._reserved_bytes:
            return
        stepped_bytes = -(-end_bytes // _RESERVE_STEP_BYTES) * _RESERVE_STEP_BYTES
        target_bytes = min(stepped_bytes, self.size_bytes)
        try:
            os.posix_fallocate(self._fd, self._reserved_bytes, target_bytes - self._reserved_bytes)
        except OSError as exc:
            raise CapacityError(
                f"file system of arena {self.path} has no room for {target_bytes} bytes: {exc}"
            ) from exc
        self._reserved_bytes = target_bytes


class SharedMemoryPeer(PeerArena):
    """Map another worker's arena file, read-only. Raises OSError if it is not there."""

    def __init__(self, path: str) -> None:
        self.path = path
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.size_bytes = os.fstat(fd).st_size
            self._map = mmap.mmap(fd, self.size_bytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        finally:
            os.close(fd)

    def read_into(self, target: Any, offset_bytes: int, size_bytes: int) -> None:
        """See PeerArena."""
        _fast.copy(target, 0, self._map, offset_bytes, size_bytes)

    def close(self) -> None:
        """See PeerArena; a read in progress on another thread ends first."""
        try:
            self._map.close()
        except BufferError:
            # A reader holds the buffer right now; the map goes with its last reference.
            return
