"""Files of a run are saved beside what is there, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyserverless.client.outputs import free_path


def test_file_that_exists_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "a (1).png").write_bytes(b"")
    assert free_path(tmp_path, "", "a.png") == tmp_path / "a (2).png"


@pytest.mark.parametrize(
    ("subfolder", "filename"),
    [("../..", "x.png"), ("/etc", "x.png"), ("", "../../x.png"), ("..\\..", "a\\x.png")],
)
def test_names_of_the_server_stay_below_the_folder(tmp_path: Path, subfolder: str, filename: str) -> None:
    path = free_path(tmp_path, subfolder, filename)
    assert path.resolve().is_relative_to(tmp_path.resolve())
    assert path.name == "x.png"


def test_subfolder_is_kept(tmp_path: Path) -> None:
    assert free_path(tmp_path, "day/one", "x.png") == tmp_path / "day" / "one" / "x.png"
