"""Opening model files and loading single tensors."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.weights import open_weights
from tests.unit.models.files import write_file


def test_tensors_load_as_they_were_saved_or_cast(tmp_path: Path) -> None:
    x = torch.arange(6, dtype=torch.float16).reshape(2, 3)
    weights = open_weights(write_file(tmp_path / "a.safetensors", {"x": x, "n": torch.tensor(7)}).path)
    assert torch.equal(weights.load("x"), x)
    assert weights.load("x", torch.float32).dtype is torch.float32
    assert weights.load("n").item() == 7


def test_a_view_below_a_prefix_has_short_names_and_the_same_tensors(tmp_path: Path) -> None:
    file = write_file(tmp_path / "a.safetensors", {"net.x": torch.ones(2), "other.x": torch.zeros(2)})
    part = open_weights(file.path).below("net.")
    assert list(part) == ["x"]
    assert torch.equal(part.load("x"), torch.ones(2))


def test_a_lacking_tensor_is_named_with_its_file(tmp_path: Path) -> None:
    weights = open_weights(write_file(tmp_path / "a.safetensors", {"x": torch.ones(2)}).path)
    with pytest.raises(ModelFileError, match=r"a\.safetensors: lacks the tensor 'y'"):
        weights.load("y")


def test_a_file_that_shrinks_after_it_was_opened_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    weights = open_weights(write_file(path, {"x": torch.ones(100)}).path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ModelFileError, match="truncated while it was being read"):
        weights.load("x")


@pytest.mark.parametrize("nested", [False, True], ids=["flat", "in state_dict"])
def test_a_pickled_checkpoint_of_plain_tensors_loads(tmp_path: Path, nested: bool) -> None:
    tensors = {"x": torch.ones(2), "step": torch.tensor(3)}
    path = tmp_path / "a.ckpt"
    torch.save({"state_dict": tensors, "epoch": 1} if nested else tensors, path)
    weights = open_weights(str(path))
    assert set(weights) == {"x", "step"}
    assert torch.equal(weights.load("x"), torch.ones(2))


class Evil:
    """Pickles to a call."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("ran code of the file",)


def test_a_pickle_with_code_is_refused_and_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "evil.ckpt"
    torch.save({"x": Evil()}, path)
    with pytest.raises(ModelFileError, match=r"evil\.ckpt: holds more than plain tensors"):
        open_weights(str(path))
    assert "ran code" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"not a torch file", pickle.dumps([1, 2], protocol=2)])
def test_a_foreign_file_with_a_pickle_suffix_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"a\.pt: "):
        open_weights(str(path))
