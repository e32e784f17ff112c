"""Texts in files, and any value as text."""

from __future__ import annotations

from pathlib import Path

import torch

from comfyserverless.functions.texts.saving import TextSave
from comfyserverless.functions.texts.showing import TextShow


def test_text_is_written_in_utf_8(tmp_path: Path) -> None:
    given = {"text": "a ä\r\n\ud800", "directory": str(tmp_path / "new"), "stem": ".s", "metadata": {}}
    (path,) = TextSave().execute({}, **given)["files"]
    assert Path(path).read_bytes() == b"a \xc3\xa4\r\n\xed\xa0\x80"


def test_value_with_tensors_is_shown_as_python_does() -> None:
    shown = TextShow().execute({}, value={"samples": torch.zeros(2), "n": [1]}, limit=100)["text"]
    assert shown == "{'samples': tensor([0., 0.]), 'n': [1]}"
    assert TextShow().execute({}, value=torch.zeros(1000, 1000), limit=20)["text"] == "tensor([[0., 0., 0.,"
