"""Paths stay inside their folder, writes are atomic, active types are known."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comfyserverless.server.disk import (
    content_type_of,
    header_name,
    is_active,
    is_temporary,
    make_folder,
    move_file,
    resolve_inside,
    write_file,
)


@given(st.text(alphabet="./a\\\0%~é", max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_name_resolves_outside_its_folder(tmp_path: Path, name: str) -> None:
    base = tmp_path / "base"
    path = resolve_inside(base, name)
    assert path is None or Path(path) == base or base in Path(path).parents


def test_link_is_followed_inside_and_refused_outside(tmp_path: Path) -> None:
    base = tmp_path / "base"
    (base / "real").mkdir(parents=True)
    (base / "inner").symlink_to(base / "real")
    (base / "outer").symlink_to(tmp_path)
    assert resolve_inside(base, "inner/a.png") == str(base / "real" / "a.png")
    assert resolve_inside(base, "outer/a.png") is None


def test_folder_that_is_a_link_itself_serves_its_files(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "output").symlink_to(tmp_path / "disk")
    assert resolve_inside(tmp_path / "output", "a.png") == str(tmp_path / "disk" / "a.png")


@pytest.mark.parametrize(
    "name", ["a.html", "a.HTM", "a.js", "a.mjs", "a.css", "a.svg", "a.xml", "a.xhtml", "a.mhtml", "a.xsl"]
)
def test_types_that_could_run_are_active(name: str) -> None:
    assert is_active(content_type_of(name))


@pytest.mark.parametrize("name", ["a.png", "a.mp4", "a.json", "a.txt", "a.glb", "a.gltf", "a", "a.unknown"])
def test_other_types_are_not_active(name: str) -> None:
    assert not is_active(content_type_of(name))


def test_header_name_cannot_leave_its_quotes() -> None:
    assert header_name('a"\r\nX: \\b.png') == "aX: b.png"


def test_write_replaces_only_if_allowed_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "a.json")
    write_file(path, b"1", may_replace=False)
    with pytest.raises(FileExistsError):
        write_file(path, b"2", may_replace=False)
    write_file(path, b"3", may_replace=True)
    assert Path(path).read_bytes() == b"3"
    assert os.listdir(tmp_path / "deep") == ["a.json"]


def test_failed_write_keeps_the_old_content(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_file(str(tmp_path / "folder"), b"x", may_replace=True)
    assert not [name for name in os.listdir(tmp_path) if is_temporary(name)]


@pytest.mark.parametrize("relative", ["file", "file/below", "x/" * 1500])
def test_folder_that_cannot_be_made_is_not_mistaken_for_a_taken_name(tmp_path: Path, relative: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"in the way|Not a directory|too many folders") as caught:
        make_folder(str(tmp_path / relative))
    assert not isinstance(caught.value, FileExistsError)


def test_names_are_not_taken_twice_where_there_are_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links")

    monkeypatch.setattr(os, "link", refuse)
    target = str(tmp_path / "a")
    write_file(target, b"1", may_replace=False)
    with pytest.raises(FileExistsError):
        write_file(target, b"2", may_replace=False)
    (tmp_path / "b").write_bytes(b"3")
    with pytest.raises(FileExistsError):
        move_file(str(tmp_path / "b"), target, may_replace=False)
    assert (tmp_path / "a").read_bytes() == b"1"
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
