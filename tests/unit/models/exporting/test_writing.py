"""Files are written tensor by tensor, and are there as a whole or not at all."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.models.exporting.entries import Entry, constant, joined
from comfyserverless.models.exporting.writing import write_file
from comfyserverless.models.interruption import interruptible

TENSORS = {
    "half": torch.arange(3, dtype=torch.float16),
    "brain": torch.arange(4, dtype=torch.bfloat16).reshape(2, 2),
    "long": torch.arange(5)[None],
    "empty": torch.zeros(0),
    "scalar": torch.tensor(1.5),
    "eighth": torch.ones(3).to(torch.float8_e4m3fn),
}


def test_file_holds_tensors_and_texts_as_the_library_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.part"
    texts = {"prompt": '{"é": "\ud83d\ude00"}'.encode("utf-16", "surrogatepass").decode("utf-16")}
    write_file(path, {name: constant(tensor) for name, tensor in TENSORS.items()}, texts)
    loaded = load_file(path)
    assert loaded.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert loaded[name].dtype == tensor.dtype
        assert loaded[name].shape == tensor.shape
        assert torch.equal(loaded[name].float(), tensor.float())
    with safe_open(path, "pt") as file:
        assert file.metadata() == texts


def test_tensors_are_made_one_after_the_other(tmp_path: Path) -> None:
    made: list[weakref.ref[Tensor]] = []

    def make() -> Tensor:
        assert all(each() is None for each in made), "those before are gone"
        tensor = torch.zeros(4)
        made.append(weakref.ref(tensor))
        return tensor

    entries = {name: Entry(torch.float32, (4,), make) for name in "abc"}
    write_file(tmp_path / "a", entries, {})
    assert len(made) == 3


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()])
def test_nothing_is_left_of_a_file_that_could_not_be_finished(tmp_path: Path, error: BaseException) -> None:
    def fail() -> Tensor:
        raise error

    path = tmp_path / "a.part"
    with pytest.raises(type(error)):
        write_file(path, {"a": constant(torch.ones(3)), "b": Entry(torch.float32, (3,), fail)}, {})
    assert not path.exists()


def test_interrupt_ends_a_save_between_two_tensors(tmp_path: Path) -> None:
    made = []

    class Stopped(Exception):
        pass

    def check() -> None:
        if made:
            raise Stopped

    def make() -> Tensor:
        made.append(1)
        return torch.ones(2)

    with pytest.raises(Stopped), interruptible(check):
        write_file(tmp_path / "a", {name: Entry(torch.float32, (2,), make) for name in "abc"}, {})
    assert len(made) == 1
    assert not list(tmp_path.iterdir())


def test_disk_that_refuses_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/dev/full")
    with pytest.raises(PromptError, match="Saving failed: No space left on device"):
        write_file(tmp_path / "a", {"a": constant(torch.ones(3))}, {})
    assert not list(tmp_path.iterdir())


def test_joined_parts_have_the_finest_of_their_types() -> None:
    made = joined([constant(torch.ones(1, 2, dtype=torch.float16)), constant(torch.zeros(2, 2))])
    assert (made.dtype, made.shape) == (torch.float32, (3, 2))
    assert torch.equal(made.make(), torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]))
