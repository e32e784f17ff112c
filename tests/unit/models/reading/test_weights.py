"""Opening model files and loading single tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.reading.weights import open_weights
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
    with pytest.raises(ModelFileError, match="was replaced while this prompt used it"):
        weights.load("x")


def test_a_side_that_a_shape_lacks_is_told_with_the_tensor(tmp_path: Path) -> None:
    weights = open_weights(write_file(tmp_path / "a.safetensors", {"x": torch.ones(2)}).path)
    assert weights.length("x", 0) == 2
    with pytest.raises(ModelFileError, match=r"a\.safetensors: tensor 'x' has the shape \[2\]"):
        weights.length("x", 1)


def test_quantised_weights_are_refused_where_real_numbers_are_needed(tmp_path: Path) -> None:
    tensors = {"w": torch.ones(2, dtype=torch.int8), "f": torch.ones(2).to(torch.float8_e4m3fn)}
    weights = open_weights(write_file(tmp_path / "a.safetensors", tensors).path)
    with pytest.raises(ModelFileError, match=r"a\.safetensors: tensor 'w' .*quantised .*supported: float16"):
        weights.check_real("w")
    weights.check_real("f")
    assert weights.load("f", torch.float32).tolist() == [1.0, 1.0]
    assert weights.load("w", torch.float32).tolist() == [1.0, 1.0], "small numbers such as alpha may be whole"


@pytest.mark.parametrize("suffix", [".ckpt", ".pt", ".pth", ".bin", ".pkl", ".CKPT"])
def test_every_suffix_of_pickles_is_read_as_one(tmp_path: Path, suffix: str) -> None:
    torch.save({"x": torch.ones(2)}, tmp_path / f"a{suffix}")
    assert list(open_weights(str(tmp_path / f"a{suffix}"))) == ["x"]


def test_a_directory_under_a_models_name_is_refused(tmp_path: Path) -> None:
    for name in ("a.safetensors", "a.ckpt"):
        (tmp_path / name).mkdir()
        with pytest.raises(ModelFileError, match=f"{name}: cannot be read"):
            open_weights(str(tmp_path / name))
