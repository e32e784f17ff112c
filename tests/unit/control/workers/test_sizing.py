"""What a worker gets of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyserverless.control.workers.sizing import (
    LEAST_ARENA_BYTES,
    arena_share_bytes,
    check_weights_left,
    given_arena_bytes,
    host_memory_bytes,
)
from comfyserverless.core.errors import ConfigError

GIB = 1 << 30


@pytest.mark.parametrize(
    ("meminfo", "limit", "expected_bytes"),
    [
        ("MemTotal:  2048 kB\nMemFree: 1 kB\n", "max\n", 2 << 20),
        ("MemTotal:  2048 kB\n", "1048576\n", 1 << 20),
        ("MemTotal:  2048 kB\n", None, 2 << 20),
        (None, None, 0),
    ],
)
def test_memory_is_the_container_s_where_it_is_less(
    tmp_path: Path, meminfo: str | None, limit: str | None, expected_bytes: int
) -> None:
    for name, text in (("proc/meminfo", meminfo), ("sys/fs/cgroup/memory.max", limit)):
        if text is not None:
            (tmp_path / name).parent.mkdir(parents=True)
            (tmp_path / name).write_text(text)
    assert host_memory_bytes(tmp_path) == expected_bytes


@pytest.mark.parametrize(
    ("memory_bytes", "shared_free_bytes", "workers", "expected_bytes"),
    [
        (64 * GIB, 64 * GIB, 1, 16 * GIB),
        (64 * GIB, 64 * GIB, 4, 4 * GIB),
        (24 * GIB, 24 * GIB, 1, 6 * GIB),
        (63 * GIB + 5, 64 * GIB, 1, 63 * GIB // 4),
        (64 * GIB, 10 * GIB, 1, 8 * GIB),
        (64 * GIB, 64 << 20, 1, LEAST_ARENA_BYTES),
        (0, 0, 2, LEAST_ARENA_BYTES),
    ],
)
def test_arenas_share_memory_and_are_never_too_small(
    memory_bytes: int, shared_free_bytes: int, workers: int, expected_bytes: int
) -> None:
    assert arena_share_bytes(memory_bytes, shared_free_bytes, workers) == expected_bytes


def test_arena_size_that_was_asked_for_must_fit_the_memory() -> None:
    assert given_arena_bytes(2 * GIB, 8 * GIB, 4) == 2 * GIB
    assert given_arena_bytes(2 * GIB, 0, 4) == 2 * GIB, "the memory is not known"
    with pytest.raises(ConfigError, match=r"--arena-memory 2G: 5 workers would need 10G, the machine has 8G"):
        given_arena_bytes(2 * GIB, 8 * GIB, 5)


def test_results_in_gpu_memory_must_leave_room_for_weights() -> None:
    check_weights_left(8 * GIB, 4 * GIB)
    check_weights_left(0, 4 * GIB)  # nothing was asked for: the workers look at their GPUs
    flags = r"--device-memory 4G: results take 4G of it \(--arena-memory.*\) .* need 0\.25G at least"
    with pytest.raises(ConfigError, match=flags.replace(r"\) ", r"\), ")):
        check_weights_left(4 * GIB, 4 * GIB)
