"""Files that are replaced while they are in use: never a mix of old and new."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from comfyserverless.core.errors import ModelFileError
from comfyserverless.core.values import FileRef
from comfyserverless.models.reading.identity import opened
from tests.unit.models.files import write_file

REPLACED = r"a\.safetensors: was replaced while this prompt used it; run the prompt again"


def replace(path: Path, size: int = 2) -> None:
    """Put another file in the place of one, with a time of its own."""
    other = path.with_suffix(".new")
    write_file(other, {"x": torch.full((size,), 7.0)})
    os.utime(other, ns=(1, 1))
    other.replace(path)


def test_a_file_is_read_as_long_as_it_is_the_one_that_was_named(tmp_path: Path) -> None:
    with opened(write_file(tmp_path / "a.safetensors", {"x": torch.ones(2)})) as weights:
        assert weights.load("x").tolist() == [1.0, 1.0]


@pytest.mark.parametrize("size", [2, 3], ids=["same size", "other size"])
def test_a_file_replaced_before_it_is_read_is_refused(tmp_path: Path, size: int) -> None:
    file = write_file(tmp_path / "a.safetensors", {"x": torch.ones(2)})
    replace(tmp_path / "a.safetensors", size)
    with pytest.raises(ModelFileError, match=REPLACED), opened(file):
        pytest.fail("the file of another time was opened")


@pytest.mark.parametrize("size", [2, 3], ids=["same size", "other size"])
def test_a_file_replaced_while_it_is_read_is_refused(tmp_path: Path, size: int) -> None:
    file = write_file(tmp_path / "a.safetensors", {"x": torch.ones(2)})
    with pytest.raises(ModelFileError, match=REPLACED), opened(file):
        replace(tmp_path / "a.safetensors", size)


def test_a_failure_on_a_half_replaced_file_tells_that_it_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    file = write_file(path, {"x": torch.ones(100)})

    def read_while_it_shrinks() -> None:
        with opened(file) as weights:
            path.write_bytes(path.read_bytes()[:-8])
            weights.load("x")

    with pytest.raises(ModelFileError, match=REPLACED):
        read_while_it_shrinks()


def test_a_reference_without_size_and_time_names_whatever_lies_there(tmp_path: Path) -> None:
    write_file(tmp_path / "a.safetensors", {"x": torch.ones(2)})
    with opened(FileRef(str(tmp_path / "a.safetensors"))) as weights:
        assert list(weights) == ["x"]


@pytest.mark.parametrize(
    "error", [KeyError("q"), IndexError("tuple"), ValueError("int"), ZeroDivisionError("0")]
)
def test_what_goes_wrong_while_a_model_is_built_names_its_file(tmp_path: Path, error: Exception) -> None:
    file = write_file(tmp_path / "a.safetensors", {"x": torch.ones(2)})
    with (
        pytest.raises(ModelFileError, match=r"a\.safetensors: its tensors do not make up a model"),
        opened(file),
    ):
        raise error


def test_lack_of_memory_is_not_the_files_fault(tmp_path: Path) -> None:
    file = write_file(tmp_path / "a.safetensors", {"x": torch.ones(2)})
    with pytest.raises(torch.OutOfMemoryError), opened(file):
        raise torch.OutOfMemoryError("full")
