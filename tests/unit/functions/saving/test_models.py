"""What saving functions write of autoencoders; networks are saved in tests on a server."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from comfyserverless.core.errors import ModelFileError
from comfyserverless.core.values import FileRef, VaeRef
from comfyserverless.functions.saving.models import VaeSave
from tests.support.make_tiny_models import Spec, build, vae_kl
from tests.support.tiny_autoencoders import decoder_tensors, encoder_tensors, write_tensors
from tests.unit.models.files import write_file


def saved(tmp_path: Path, vae: VaeRef, **metadata: str) -> Path:
    where = {"directory": str(tmp_path / "out"), "stem": ".x", "metadata": metadata}
    (path,) = VaeSave().execute({}, vae=vae, **where)["files"]
    assert path == str(tmp_path / "out" / ".x_0.part")
    return Path(path)


def test_autoencoder_of_a_checkpoint_is_a_file_of_its_own_with_the_texts(tmp_path: Path) -> None:
    tensors = build(Spec().put("", vae_kl(4, ch=8, mults=(1, 2))), "vae", torch.float16)
    inside = {f"first_stage_model.{name}": tensor for name, tensor in tensors.items()}
    file = write_file(tmp_path / "a.safetensors", inside | {"model.diffusion_model.x": torch.zeros(1)})
    path = saved(tmp_path, VaeRef(file), prompt="{}")
    assert {name: tensor.tolist() for name, tensor in load_file(path).items()} == {
        name: tensor.tolist() for name, tensor in tensors.items()
    }
    with safe_open(path, "pt") as opened:
        assert opened.metadata() == {"prompt": "{}"}


def test_tiny_autoencoder_of_two_files_becomes_one(tmp_path: Path) -> None:
    decoder, encoder = (
        FileRef(str(write_tensors(tmp_path / name, tensors)))
        for name, tensors in (("d.pth", decoder_tensors()), ("e.pth", encoder_tensors()))
    )
    names = load_file(saved(tmp_path, VaeRef(decoder, encoder, "taesdxl"))).keys()
    halves = {"encoder": encoder_tensors(), "decoder": decoder_tensors()}
    wanted = {f"taesd_{half}.{name}" for half, tensors in halves.items() for name in tensors}
    assert names == wanted | {"vae_scale", "vae_shift"}


def test_file_without_an_autoencoder_leaves_nothing(tmp_path: Path) -> None:
    file = write_file(tmp_path / "a.safetensors", {"x": torch.zeros(1)})
    with pytest.raises(ModelFileError, match="holds no autoencoder"):
        saved(tmp_path, VaeRef(file))
    assert not (tmp_path / "out").exists()
