"""Files of tensors as packs read and write them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch

from comfyserverless.core.errors import ModelFileError
from comfyserverless.host.helpers.files import load_torch_file, safetensors_header, save_torch_file


def test_safetensors_come_back_with_their_metadata(tmp_path: Path) -> None:
    path = str(tmp_path / "x.safetensors")
    save_torch_file({"a": torch.arange(6.0).reshape(2, 3).T}, path, metadata={"k": "v"})
    tensors, metadata = load_torch_file(path, return_metadata=True)
    assert torch.equal(tensors["a"], torch.arange(6.0).reshape(2, 3).T)
    assert metadata == {"k": "v"}
    header = safetensors_header(path)
    assert header is not None
    assert json.loads(header)["a"]["shape"] == [3, 2]
    assert safetensors_header(path, max_size=8) is None


@pytest.mark.parametrize(
    "content", [{"state_dict": {"a": 1.5}, "epoch": 3}, {"only": {"a": 1.5}}, {"a": 1.5}], ids=str
)
def test_pickles_are_unwrapped(tmp_path: Path, content: dict[str, object]) -> None:
    path = str(tmp_path / "x.pth")
    torch.save(content, path)
    assert load_torch_file(path) == {"a": 1.5}
    assert load_torch_file(path, return_metadata=True) == ({"a": 1.5}, None)


def test_code_in_a_pickle_does_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (pytest.fail, ("it ran",))

    path = tmp_path / "x.pt"
    path.write_bytes(pickle.dumps(Evil(), protocol=2))
    with pytest.raises(ModelFileError, match=r"x\.pt"):
        load_torch_file(str(path))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"nothing")
    with pytest.raises(ModelFileError, match=r"x\.safetensors"):
        load_torch_file(str(path))
