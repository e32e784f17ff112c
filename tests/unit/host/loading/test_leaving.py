"""Packs that end the process of all."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

from comfyserverless.host.loading.leaving import watch_exits


class Left(BaseException):
    """The process would have ended."""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    def leave(status: int) -> None:
        raise Left(status)

    monkeypatch.setattr(os, "_exit", leave)
    found: list[tuple[str, str]] = []
    watch_exits([str(tmp_path)], lambda pack, where: found.append((pack, where)))
    return found


@pytest.mark.parametrize("name", ["pack/deep/code.py", "pack.py"])
def test_pack_that_ends_the_process_is_named_with_its_line(
    tmp_path: Path, told: list[tuple[str, str]], name: str
) -> None:
    code = tmp_path / name
    code.parent.mkdir(parents=True, exist_ok=True)
    code.write_text("import os\n\nos._exit(3)\n")
    with pytest.raises(Left, match="3"):
        runpy.run_path(str(code))
    assert told == [("pack", f"os._exit in {name}, line 3")]


def test_our_own_end_names_nobody(told: list[tuple[str, str]]) -> None:
    with pytest.raises(Left):
        os._exit(0)
    assert told == []


def test_end_of_a_fork_is_no_end_of_the_process(
    tmp_path: Path, told: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pack.py").write_text("import os\nos._exit(3)\n")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(Left):
        runpy.run_path(str(tmp_path / "pack.py"))
    assert told == []
