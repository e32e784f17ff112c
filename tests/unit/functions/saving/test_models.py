"""Autoencoders in files."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from comfyserverless.core.values import FileRef, VaeRef
from comfyserverless.functions.registry import FUNCTIONS
from comfyserverless.models.pool import ModelPool
from tests.support.tiny_autoencoders import decoder_tensors, encoder_tensors, write_tensors


def test_saved_tiny_autoencoder_is_one_file_that_decodes_alike(tmp_path: Path) -> None:
    files = [
        FileRef(str(write_tensors(tmp_path / name, tensors)))
        for name, tensors in (("d.pth", decoder_tensors()), ("e.safetensors", encoder_tensors()))
    ]
    vae = VaeRef(*files, "taesd")
    saved = FUNCTIONS["vae.save"].execute({}, vae=vae, directory=str(tmp_path), stem="s", metadata={})["files"]
    assert load_file(saved[0]).keys() >= {"taesd_encoder.0.weight", "taesd_decoder.19.bias", "vae_scale"}
    samples = torch.randn(1, 4, 2, 2, generator=torch.Generator().manual_seed(1))
    decoded = [ModelPool().vae(each).decode(samples) for each in (vae, VaeRef(FileRef(saved[0])))]
    assert torch.allclose(*decoded, atol=1e-6)
