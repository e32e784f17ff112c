"""Autoencoders come out under their original names, whichever ones they came in with."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from comfyserverless.models.autoencoder_layout import find_autoencoder
from comfyserverless.models.exporting.autoencoders import autoencoder_entries
from comfyserverless.models.exporting.writing import write_file as write
from comfyserverless.models.reading.weights import open_weights
from tests.support.make_tiny_models import Spec, build, vae_kl
from tests.unit.models.files import write_file


def test_original_and_diffusers_files_give_the_same(tmp_path: Path) -> None:
    tensors = build(Spec().put("", vae_kl(4, ch=8, mults=(1, 2, 4))), "vae", torch.float16)
    extra = {"first_stage_model." + name: tensor for name, tensor in tensors.items()}
    extra["first_stage_model.loss.logvar"] = torch.zeros(1)
    original = write_file(tmp_path / "a.safetensors", extra)
    found = find_autoencoder(open_weights(original.path))
    renamed = {
        name: tensor.flatten(1) if "attentions.0.to_" in name and tensor.ndim == 4 else tensor
        for name in found
        for tensor in [found.load(name)]
    }
    diffusers = write_file(tmp_path / "b.safetensors", renamed)
    for file in (original, diffusers):
        write(tmp_path / "out", autoencoder_entries(open_weights(file.path)), {})
        saved = load_file(tmp_path / "out")
        assert saved.keys() == tensors.keys()
        assert all(torch.equal(saved[name], tensor) for name, tensor in tensors.items())
