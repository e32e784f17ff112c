"""Scratch files of live and dead servers."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from comfyserverless.control.workers.scratch import Scratch, remove_stale


def test_close_leaves_nothing(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    Path(f"{scratch.prefix}w0.0.arena").write_bytes(b"x")
    (scratch.folder / "link.sock").write_bytes(b"")
    scratch.close()
    assert list(tmp_path.iterdir()) == []


def test_files_of_a_dead_server_are_removed_and_those_of_a_live_one_kept(tmp_path: Path) -> None:
    live = Scratch(tmp_path)
    arena = Path(f"{live.prefix}w0.0.arena")
    arena.write_bytes(b"live")
    dead = f"comfyserverless-{os.getuid()}-1-dead-"
    for name in ("lock", "w0.0.arena"):
        (tmp_path / f"{dead}{name}").write_bytes(b"")
    (tmp_path / f"{dead}run").mkdir()
    assert remove_stale(tmp_path) == 1
    assert arena.read_bytes() == b"live"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(dead)]
    live.close()


def test_servers_know_by_tag_which_others_run(tmp_path: Path) -> None:
    first, second = Scratch(tmp_path), Scratch(tmp_path)
    assert second.is_live(first.tag)
    first.close()
    assert not second.is_live(first.tag)
    assert second.is_live(second.tag)
    second.close()


def test_arenas_on_disk_are_removed_by_their_own_locks_when_the_servers_lock_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    for folder in (memory, disk):
        folder.mkdir()
    dead, live, new = (disk / f"comfyserverless-{os.getuid()}-1-{name}-w0.0.arena" for name in ("a", "b", "c"))
    for path in (dead, live, new):
        path.write_bytes(b"x")
    for path in (dead, live):
        os.utime(path, (1, 1))
    with live.open("rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        remove_stale(memory)
        assert sorted(disk.iterdir()) == [live, new]
