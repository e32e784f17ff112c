"""What the user gives is checked before anything is sent, and answers are exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comfyserverless import cli
from comfyserverless.client.commands import _prompt
from comfyserverless.graph.workflows.document import WorkflowError
from comfyserverless.graph.workflows.files import read_file


@pytest.mark.parametrize(
    "flags", [["--timeout", "-1"], ["--timeout", "soon"], ["--local", "--server", "http://a"], ["--sett", "a"]]
)
def test_wrong_flags_end_with_code_2(flags: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", str(tmp_path / "w.json"), *flags])
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"no json", "neither JSON nor one of PNG"),
        (b'{"a": 1}', "neither a saved workflow"),
    ],
)
def test_bad_file_is_named(
    content: bytes | None, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "w.json"
    if content is not None:
        file.write_bytes(content)
    assert cli.main(["run", str(file)]) == 2
    error = capsys.readouterr().err
    assert str(file) in error
    assert reason in error


def test_folder_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "w.json").write_text('{"1": {"class_type": "A", "inputs": {}}}')
    code = cli.main(["run", str(tmp_path / "w.json"), "--local", "--models-directory", str(tmp_path / "gone")])
    assert code == 2
    assert f"--models-directory {tmp_path / 'gone'}: there is no such folder" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_output_that_cannot_be_a_folder_is_told_before_anything_runs(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w.json").write_text('{"1": {"class_type": "A", "inputs": {}}}')
    (tmp_path / "file").write_text("")
    assert cli.main(["run", str(tmp_path / "w.json"), "--output", str(tmp_path / place)]) == 2
    assert "nothing can be saved there" in capsys.readouterr().err


def test_token_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "w.json").write_text('{"1": {"class_type": "A", "inputs": {}}}')
    assert cli.main(["run", str(tmp_path / "w.json"), "--token", "a\nb"]) == 2
    assert "access token" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["nonsense", "http://127.0.0.1:1/path/"])
def test_server_that_cannot_be_reached_is_code_1(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w.json").write_text('{"1": {"class_type": "A", "inputs": {}}}')
    assert cli.main(["run", str(tmp_path / "w.json"), "--server", url]) == 1
    assert url.rstrip("/") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"1": {"class_type": "A", "inputs": {}}, "2": 3}, "node 2 has no class_type"),
        ({"1": {"class_type": "A", "inputs": []}}, "node 1 has no class_type, or inputs"),
        ({"1": {"class_type": "B", "inputs": {}}}, r"does not have these node classes: B \(node 1\)"),
        ({"nodes": [], "links": []}, "no node that runs"),
    ],
)
def test_what_cannot_run_is_said(content: Any, reason: str) -> None:
    with pytest.raises(WorkflowError, match=reason):
        _prompt(read_file(json.dumps(content).encode(), "w"), {"A": {}})
