"""One server at a time has a folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from comfyserverless.control.records.lock import FolderLock
from comfyserverless.core.errors import ConfigError


def test_folder_is_had_by_one_at_a_time_and_the_holder_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "user"
    with FolderLock(folder), pytest.raises(ConfigError, match=rf"process {os.getpid()}\).*{folder}"):
        FolderLock(folder)
    FolderLock(folder).close()


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="file/user"):
        FolderLock(tmp_path / "file/user")


def test_file_of_records_is_had_by_one_at_a_time_beside_others(tmp_path: Path) -> None:
    held = [FolderLock(tmp_path), FolderLock(tmp_path, "a.db"), FolderLock(tmp_path, "b.db")]
    with pytest.raises(ConfigError, match=r"uses .*/a\.db; .* --database"):
        FolderLock(tmp_path, "a.db")
    for lock in held:
        lock.close()
