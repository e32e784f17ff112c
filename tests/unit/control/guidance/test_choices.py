"""Choices that were made by measuring."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from comfyserverless.control.guidance.choices import Choices


def test_first_choice_holds_whatever_is_measured_later(tmp_path: Path) -> None:
    choices = Choices(tmp_path / "deep" / "guidance.json")
    assert choices.find("xl") is None
    assert choices.keep("xl", True) is True
    assert choices.keep("xl", False) is True
    assert choices.find("xl") is True


def test_choice_outlives_the_server(tmp_path: Path) -> None:
    path = tmp_path / "guidance.json"
    Choices(path).keep("xl", True)
    Choices(path).keep("sd", False)
    after = Choices(path)
    assert (after.find("xl"), after.find("sd"), after.find("other")) == (True, False, None)
    assert list(tmp_path.iterdir()) == [path], "nothing else is left"


def test_choice_without_a_file_holds_while_the_server_runs() -> None:
    choices = Choices(None)
    choices.keep("xl", True)
    assert choices.find("xl") is True


@pytest.mark.parametrize("content", ["{", "[1]", "\udcff"])
def test_damaged_file_is_told_and_replaced(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "guidance.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with caplog.at_level(logging.WARNING):
        assert Choices(path).find("xl") is None
    assert "guidance.json" in caplog.text
    Choices(path).keep("xl", True)
    assert Choices(path).find("xl") is True


def test_folder_that_cannot_be_written_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    choices = Choices(tmp_path / "file" / "guidance.json")
    with caplog.at_level(logging.WARNING):
        choices.keep("xl", True)
    assert choices.find("xl") is True
    assert "cannot be kept" in caplog.text
