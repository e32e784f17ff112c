"""Keep an arena in a file that every process on this host can map (CPU machines, and staging on others).

The file lives in /dev/shm, or on a real file system where /dev/shm has too little room. The memory of a block
is taken from the file system before the block is handed out, so a full file system is a CapacityError and
never a SIGBUS; it goes back when the block is freed, but for a little that is kept for the next one.
`multiprocessing.shared_memory` is not used because on Python 3.11 a process that merely attached a segment
removes it when it exits.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from comfyserverless.core.errors import CapacityError, NoRoomError
from comfyserverless.dataplane import _fast
from comfyserverless.dataplane.arena import ALIGNMENT_BYTES, Block, LocalArena, PeerArena, no_room
from comfyserverless.dataplane.reservation import Reservation

_KEPT_BYTES = 64 << 20
_BURST_SHARE = 4  # this part of the arena may be idle, until it was for some seconds
_FLAG_BYTES = 64  # a cache line of its own, so that waiters of one flag do not slow down another

Bytes = npt.NDArray[np.uint8]


def choose_path(preferred: str, fallback: str, size_bytes: int) -> str:
    """Return `preferred` if its file system has room for size_bytes more, else `fallback` (if there is one)."""
    if not fallback:
        return preferred
    stats = os.statvfs(Path(preferred).parent)
    return preferred if stats.f_bavail * stats.f_frsize >= size_bytes else fallback


class _FileMemory:
    """Take memory for parts of a mapped file, and give it back."""

    def __init__(self, fd: int, mapped: mmap.mmap) -> None:
        self._fd = fd
        self._map = mapped

    def take(self, offset_bytes: int, size_bytes: int) -> None:
        os.posix_fallocate(self._fd, offset_bytes, size_bytes)

    def give_back(self, offset_bytes: int, size_bytes: int) -> None:
        # The same as fallocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE), which Python does not offer.
        self._map.madvise(mmap.MADV_REMOVE, offset_bytes, size_bytes)


class SharedMemoryArena(LocalArena):
    """Own an arena file.

    Creates `path`; raises FileExistsError if it exists (a stale file is the control process's to remove), and
    CapacityError if the file system cannot hold it. The file is locked (flock) while its owner lives.
    size_bytes is rounded up to whole pages. populated: touch all pages now (about 1 s per GB) instead of
    when blocks are handed out.
    """

    device = torch.device("cpu")
    reads_into_arena = False

    def __init__(self, path: str, size_bytes: int, *, populated: bool = False) -> None:
        self.path = path
        self.size_bytes = max(-(-size_bytes // mmap.PAGESIZE), 1) * mmap.PAGESIZE
        self._blocks = _fast.BuddyAllocator(self.size_bytes, ALIGNMENT_BYTES)
        #: all and only live blocks: offset -> size in bytes as it was asked for
        self._sizes_bytes: dict[int, int] = {}
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            os.ftruncate(self._fd, self.size_bytes)
            self._map = mmap.mmap(self._fd, self.size_bytes, flags=mmap.MAP_SHARED)
            self._flat = np.frombuffer(self._map, np.uint8)
            kept_bytes = self.size_bytes if populated else min(_KEPT_BYTES, self.size_bytes)
            memory = _FileMemory(self._fd, self._map)
            burst_bytes = self.size_bytes // _BURST_SHARE
            self._reservation = Reservation(memory, self.size_bytes, kept_bytes, burst_bytes)
            if populated:
                self._populate()
        except BaseException:
            self.close()
            raise

    def allocate(self, size_bytes: int) -> int:
        """See LocalArena."""
        offset_bytes = self._blocks.alloc(size_bytes)
        if offset_bytes is None:
            raise no_room(self, size_bytes, self._blocks.largest_free_bytes)
        try:
            self._reserve(offset_bytes, size_bytes)
        except CapacityError:
            self._blocks.free(offset_bytes)
            raise
        self._sizes_bytes[offset_bytes] = size_bytes
        return offset_bytes

    def release(self, offset_bytes: int) -> None:
        """See LocalArena."""
        self._blocks.free(offset_bytes)
        self._reservation.release(offset_bytes, self._sizes_bytes.pop(offset_bytes))

    def trim(self) -> None:
        """See LocalArena."""
        if self._fd >= 0:
            self._reservation.trim()

    def view(self, offset_bytes: int, size_bytes: int) -> Bytes:
        """See LocalArena; a block is a [size_bytes] uint8 array."""
        return self._flat[offset_bytes : offset_bytes + size_bytes]

    def tensor(self, block: Block) -> torch.Tensor:
        """See LocalArena."""
        return torch.from_numpy(block)

    def write(self, offset_bytes: int, data: bytes) -> None:
        """See LocalArena."""
        _fast.copy(self._map, offset_bytes, data, 0, len(data))

    def flush(self) -> None:
        """See LocalArena: writes by the CPU are done when they return."""

    def allocate_flag(self) -> int:
        """See LocalArena."""
        offset_bytes = self.allocate(_FLAG_BYTES)
        self._flat[offset_bytes : offset_bytes + _FLAG_BYTES] = 0
        return offset_bytes

    def release_flag(self, offset_bytes: int) -> None:
        """See LocalArena."""
        self.release(offset_bytes)

    def publish(self, flag_bytes: int, value: int) -> None:
        """See LocalArena."""
        _fast.publish_flag(self._map, flag_bytes, value)

    def attach(self, path: str) -> SharedMemoryPeer:
        """See LocalArena."""
        return SharedMemoryPeer(path)

    @property
    def used_bytes(self) -> int:
        """See LocalArena."""
        return self._blocks.used_bytes

    @property
    def live_blocks(self) -> int:
        """See LocalArena."""
        return self._blocks.live_blocks

    @property
    def largest_free_bytes(self) -> int:
        """See LocalArena."""
        return self._blocks.largest_free_bytes

    @property
    def reserved_bytes(self) -> int:
        """Return how much memory the file has now."""
        return self._reservation.reserved_bytes

    def close(self) -> None:
        """See LocalArena: the file's name goes, its memory with the last view."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            Path(self.path).unlink(missing_ok=True)

    def _reserve(self, offset_bytes: int, size_bytes: int) -> None:
        try:
            self._reservation.reserve(offset_bytes, size_bytes)
        except OSError as exc:
            raise NoRoomError(
                f"file system of arena {self.path} has no room for {size_bytes} more bytes: {exc}"
            ) from exc

    def _populate(self) -> None:
        self._reserve(0, self.size_bytes)
        self._reservation.release(0, self.size_bytes)
        self._flat[:: mmap.PAGESIZE] = 0


class SharedMemoryPeer(PeerArena):
    """Map another worker's arena file, read-only. Raises OSError if it is not there."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._end = weakref.finalize(self, os.close, self._fd)
        self._end_lock = threading.Lock()  # the number of a closed file may be another file's already
        self._map = mmap.mmap(self._fd, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)

    def read_into(self, target: Block, offset_bytes: int, size_bytes: int) -> None:
        """See PeerArena; a target is anything with a writable buffer."""
        _fast.copy(target, 0, self._map, offset_bytes, size_bytes)

    def read(self, offset_bytes: int, size_bytes: int) -> bytes:
        """See PeerArena."""
        data = bytearray(size_bytes)
        self.read_into(data, offset_bytes, size_bytes)
        return bytes(data)

    def load_flag(self, flag_bytes: int) -> int:
        """See PeerArena."""
        return _fast.load_flag(self._map, flag_bytes)

    def wait_flag(self, flag_bytes: int, value: int, timeout_s: float) -> bool:
        """See PeerArena; sleeps in the kernel."""
        return _fast.wait_flag(self._map, flag_bytes, value, timeout_s)

    def is_owner_alive(self) -> bool:
        """See PeerArena: the kernel drops the owner's lock when it ends, however it ends."""
        with self._end_lock:
            if not self._end.alive:
                return False
            try:
                fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            return False

    def close(self) -> None:
        """See PeerArena; a read in progress on another thread ends first."""
        with self._end_lock:
            self._end()
        try:
            self._map.close()
        except BufferError:
            # A reader holds the buffer right now; the map goes with its last reference.
            return
