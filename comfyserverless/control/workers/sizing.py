"""Look at the machine, and size what each worker gets of it."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from comfyserverless.core.config import LEAST_WEIGHTS_BYTES
from comfyserverless.core.errors import ConfigError

LEAST_ARENA_BYTES = 2 << 30
GPU_ARENA_BYTES = 4 << 30


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

    Arenas are sparse, so what is not used costs nothing. At least LEAST_ARENA_BYTES: one that does not fit
    shared memory is made on disk.
    """
    share_bytes = min(memory_bytes // 4, shared_free_bytes * 8 // 10) // workers
    return max(LEAST_ARENA_BYTES, share_bytes >> 20 << 20)


def checkpoint_share_bytes(memory_bytes: int, shared_free_bytes: int) -> int:
    """Return what checkpoints of all walks may take together; a few megabytes each are usual."""
    share_bytes = shared_free_bytes // 8
    return min(memory_bytes // 16, share_bytes) if memory_bytes else share_bytes


def given_arena_bytes(size_bytes: int, memory_bytes: int, workers: int) -> int:
    """Return the arena size that was asked for. Raises ConfigError if the arenas together exceed the memory."""
    if memory_bytes and size_bytes * workers > memory_bytes:
        raise ConfigError(
            f"--arena-memory {_gib(size_bytes)}: {workers} worker{'s' * (workers > 1)} would need"
            f" {_gib(size_bytes * workers)}, the machine has {_gib(memory_bytes)}"
        )
    return size_bytes


def check_weights_left(device_bytes: int, arena_bytes: int) -> None:
    """Raise ConfigError if results in a GPU's memory leave too little of it to weights.

    device_bytes: of both together, as it was asked for, 0 if it was not: workers then look at their GPUs.
    """
    if device_bytes and device_bytes - arena_bytes < LEAST_WEIGHTS_BYTES:
        raise ConfigError(
            f"--device-memory {_gib(device_bytes)}: results take {_gib(arena_bytes)} of it (--arena-memory,"
            f" with --arena nvshmem), and weights need {_gib(LEAST_WEIGHTS_BYTES)} at least"
        )


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.3g}G"
