from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comfyserverless.core.errors import CapacityError
from comfyserverless.dataplane.reservation import CHUNK_BYTES
from comfyserverless.dataplane.shared_memory import SharedMemoryArena, SharedMemoryPeer, choose_path


def test_peer_reads_what_the_owner_wrote(tmp_path: Path) -> None:
    arena = SharedMemoryArena(str(tmp_path / "a"), 1 << 16)
    offset = arena.allocate(1000)
    arena.view(offset, 1000)[:] = 7
    target = np.zeros(1000, np.uint8)
    peer = SharedMemoryPeer(arena.path)
    peer.read_into(target, offset, 1000)
    assert (target == 7).all()
    peer.close()
    with pytest.raises(ValueError, match="closed"):
        peer.read_into(target, offset, 1000)


def test_peer_refuses_a_range_outside_of_the_region(tmp_path: Path) -> None:
    arena = SharedMemoryArena(str(tmp_path / "a"), 4096)
    peer = SharedMemoryPeer(arena.path)
    with pytest.raises(IndexError):
        peer.read_into(np.zeros(8192, np.uint8), 0, 8192)


def test_memory_outlives_the_file_while_it_is_viewed(tmp_path: Path) -> None:
    arena = SharedMemoryArena(str(tmp_path / "a"), 4096)
    view = arena.view(arena.allocate(8), 8)
    view[:] = 3
    peer = SharedMemoryPeer(arena.path)
    arena.close()
    arena.close()
    assert not os.path.exists(arena.path)
    del arena
    target = np.zeros(8, np.uint8)
    peer.read_into(target, 0, 8)
    assert (view == 3).all()
    assert (target == 3).all()


def test_full_arena_names_the_sizes(tmp_path: Path) -> None:
    arena = SharedMemoryArena(str(tmp_path / "a"), 8192)
    arena.allocate(5000)
    with pytest.raises(
        CapacityError, match=r"4000 bytes does not fit, 5120 of 8192 .* largest free block has 2048"
    ):
        arena.allocate(4000)


def memory_bytes(arena: SharedMemoryArena) -> int:
    return os.stat(arena.path).st_blocks * 512


def test_block_takes_memory_of_the_file_system_and_gives_it_back(tmp_path: Path) -> None:
    arena = SharedMemoryArena(str(tmp_path / "a"), 160 << 20)
    small, big = arena.allocate(100), arena.allocate(100 << 20)
    assert 100 << 20 <= memory_bytes(arena) <= 104 << 20
    arena.view(big, 100 << 20)[-1] = 7
    arena.release(big)
    assert memory_bytes(arena) <= 66 << 20, "although a small block is live"
    big = arena.allocate(100 << 20)
    assert 100 << 20 <= memory_bytes(arena) <= 104 << 20
    assert arena.view(big, 100 << 20)[-1] == 0, "holes read as zeros"
    arena.release(big)
    arena.release(small)
    assert memory_bytes(arena) <= 64 << 20


def test_idle_memory_stays_for_the_next_block_and_goes_when_it_was_idle_for_a_while(tmp_path: Path) -> None:
    arena = SharedMemoryArena(str(tmp_path / "a"), 512 << 20)
    for _ in range(2):
        arena.release(arena.allocate(100 << 20))
        arena.trim()
        assert memory_bytes(arena) >= 100 << 20
    arena.trim()
    assert memory_bytes(arena) <= 64 << 20


def test_block_takes_memory_where_it_lies_only(tmp_path: Path) -> None:
    arena = SharedMemoryArena(str(tmp_path / "a"), 96 << 20)  # no power of two: big blocks lie far from the end
    assert memory_bytes(arena) == 0
    arena.allocate(1)
    assert memory_bytes(arena) == CHUNK_BYTES
    arena.allocate(40 << 20)
    assert memory_bytes(arena) <= 44 << 20
    assert arena.reserved_bytes == memory_bytes(arena)


def test_populated_arena_has_all_its_memory_and_keeps_it(tmp_path: Path) -> None:
    arena = SharedMemoryArena(str(tmp_path / "a"), 68 << 20, populated=True)
    assert memory_bytes(arena) >= 68 << 20
    arena.release(arena.allocate(60 << 20))
    assert memory_bytes(arena) >= 68 << 20


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 24 << 20)), max_size=20))
def test_file_has_memory_for_every_live_block_and_little_else(
    tmp_path: Path, calls: list[tuple[bool, int]]
) -> None:
    arena = SharedMemoryArena(str(tmp_path / uuid.uuid4().hex), 90 << 20)
    live: dict[int, int] = {}
    for is_new, number in calls:
        if is_new:
            with contextlib.suppress(CapacityError):
                live[arena.allocate(number)] = number
        elif live:
            offset = sorted(live)[number % len(live)]
            del live[offset]
            arena.release(offset)
        needed_bytes = sum(live.values())
        assert needed_bytes <= memory_bytes(arena)
        assert memory_bytes(arena) <= needed_bytes + (2 * len(live) + 32) * CHUNK_BYTES
        assert memory_bytes(arena) <= arena.reserved_bytes + CHUNK_BYTES
    arena.close()


def test_full_file_system_is_a_capacity_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arena = SharedMemoryArena(str(tmp_path / "a"), 1 << 20)

    def refuse(fd: int, offset: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(CapacityError, match="No space left"):
        arena.allocate(100)
    assert arena.used_bytes == 0


def test_arena_file_is_locked_while_its_owner_lives(tmp_path: Path) -> None:
    arena = SharedMemoryArena(str(tmp_path / "a"), 4096)
    with (tmp_path / "a").open("rb+") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        arena.close()
        del arena
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_stale_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        SharedMemoryArena(str(tmp_path / "a"), 4096)


def test_path_falls_back_where_the_first_has_too_little_room(tmp_path: Path) -> None:
    first, second = str(tmp_path / "a"), str(tmp_path / "b")
    assert choose_path(first, second, 4096) == first
    assert choose_path(first, second, 1 << 60) == second
    assert choose_path(first, "", 1 << 60) == first
