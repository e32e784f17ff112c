from __future__ import annotations

import fcntl
import os
from pathlib import Path

import numpy as np
import pytest

from comfyserverless.core.errors import CapacityError
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


def test_empty_arena_gives_the_memory_of_a_big_block_back_and_can_grow_again(tmp_path: Path) -> None:
    arena = SharedMemoryArena(str(tmp_path / "a"), 160 << 20)
    small, big = arena.allocate(100), arena.allocate(100 << 20)
    arena.view(big, 100 << 20)[-1] = 7
    arena.release(big)
    assert os.stat(arena.path).st_blocks * 512 >= 100 << 20
    arena.release(small)
    assert os.stat(arena.path).st_blocks * 512 <= 65 << 20
    big = arena.allocate(100 << 20)
    assert os.stat(arena.path).st_blocks * 512 >= 100 << 20
    assert arena.view(big, 100 << 20)[-1] == 0


def test_arena_takes_memory_in_steps_unless_populated(tmp_path: Path) -> None:
    lazy = SharedMemoryArena(str(tmp_path / "lazy"), 64 << 20)
    assert os.stat(lazy.path).st_blocks == 0
    lazy.allocate(1)
    assert os.stat(lazy.path).st_blocks * 512 >= 8 << 20
    ready = SharedMemoryArena(str(tmp_path / "ready"), 1 << 20, populated=True)
    assert os.stat(ready.path).st_blocks * 512 >= 1 << 20


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
