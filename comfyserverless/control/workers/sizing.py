"""Look at the machine, and size what each worker gets of it."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

LEAST_ARENA_BYTES = 2 << 30


def count_gpus() -> int:
    """Count NVIDIA devices without loading a driver library."""
    with contextlib.suppress(OSError):
        return sum(name[6:].isdigit() for name in os.listdir("/dev") if name.startswith("nvidia"))
    return 0


def host_memory_bytes(root: Path = Path("/")) -> int:
    """Return the memory that this machine, or the container, may use; 0 if it cannot be told."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        lines = (root / "proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:")]
    with contextlib.suppress(OSError, ValueError):
        found.append(int((root / "sys/fs/cgroup/memory.max").read_text()))
    return min(found, default=0)


def free_bytes(folder: Path) -> int:
    """Return the free space of a folder's file system."""
    return shutil.disk_usage(folder).free


def arena_share_bytes(memory_bytes: int, shared_free_bytes: int, workers: int) -> int:
    """Return the size of each worker's arena: of a quarter of the memory, and of what shared memory has free.

    Arenas are sparse, so what is not used costs nothing. A power of two, because a buddy allocator then fills
    the arena from its start, which is what is reserved of it. At least LEAST_ARENA_BYTES: one that does not fit
    shared memory is made on disk.
    """
    share_bytes = min(memory_bytes // 4, shared_free_bytes * 8 // 10) // workers
    return max(LEAST_ARENA_BYTES, 1 << share_bytes.bit_length() >> 1)
