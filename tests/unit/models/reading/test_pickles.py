"""Files that torch.save wrote: plain ones, those of trainers, and those that would run code."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.reading.pickles import read_pickle
from comfyserverless.models.reading.weights import open_weights


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


def test_the_refusal_names_what_the_file_would_run(tmp_path: Path) -> None:
    torch.save({"x": Evil()}, tmp_path / "evil.ckpt")
    with pytest.raises(ModelFileError, match="print"):
        open_weights(str(tmp_path / "evil.ckpt"))


@pytest.fixture
def trainer_class(monkeypatch: pytest.MonkeyPatch) -> type:
    """A class under the name that the first Stable Diffusion checkpoints mention, gone when they are read."""
    name = "pytorch_lightning.callbacks.model_checkpoint"
    module = ModuleType(name)
    kind = type("ModelCheckpoint", (), {"__module__": name})
    module.ModelCheckpoint = kind  # type: ignore[attr-defined]
    for known in ("pytorch_lightning", "pytorch_lightning.callbacks", name):
        monkeypatch.setitem(sys.modules, known, module if known == name else ModuleType(known))
    return kind


@pytest.mark.parametrize("as_zip", [True, False], ids=["zip", "old format"])
def test_a_checkpoint_of_a_training_run_loads_without_its_objects(
    tmp_path: Path, trainer_class: type, as_zip: bool
) -> None:
    content = {
        "state_dict": {"x": torch.ones(2)},
        "epoch": 3,
        "global_step": 470_000,
        "pytorch-lightning_version": "1.4.2",
        "callbacks": {trainer_class: {"monitor": "val", "best": np.float64(1.5)}},
        "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(1)}}, "param_groups": [{"lr": 1e-4}]}],
    }
    path = tmp_path / "v1-5.ckpt"
    torch.save(content, path, _use_new_zipfile_serialization=as_zip)
    del sys.modules[trainer_class.__module__]
    assert {name: tensor.tolist() for name, tensor in read_pickle(str(path)).items()} == {"x": [1.0, 1.0]}


def test_a_mapping_that_holds_itself_has_no_tensors(tmp_path: Path) -> None:
    content: dict[str, object] = {}
    content["state_dict"] = content
    torch.save(content, tmp_path / "a.ckpt")
    assert read_pickle(str(tmp_path / "a.ckpt")) == {}


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(1).expand(1_000_000), torch.eye(2).to_sparse(), torch.ones(2, device="meta")],
    ids=["one number repeated", "sparse", "without memory"],
)
def test_a_tensor_without_memory_of_its_own_is_refused(tmp_path: Path, tensor: torch.Tensor) -> None:
    torch.save({"x": tensor}, tmp_path / "a.ckpt")
    with pytest.raises(ModelFileError, match=r"a\.ckpt: "):
        read_pickle(str(tmp_path / "a.ckpt"))


@pytest.mark.parametrize("as_zip", [True, False], ids=["zip", "old format"])
def test_a_file_cut_anywhere_is_refused(tmp_path: Path, as_zip: bool) -> None:
    path = tmp_path / "a.ckpt"
    torch.save({"x": torch.arange(50.0), "y": torch.ones(3)}, path, _use_new_zipfile_serialization=as_zip)
    whole = path.read_bytes()
    for length in range(0, len(whole) - 1, 37):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelFileError, match=r"a\.ckpt: "):
            read_pickle(str(path))


def test_an_archive_in_several_parts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    torch.save({"x": torch.ones(2)}, path)
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x06\x07") + 16] = 9  # how many parts the archive says it has
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"a\.ckpt: "):
        read_pickle(str(path))
