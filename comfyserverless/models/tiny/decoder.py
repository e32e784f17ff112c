"""Decode latents as sampling sees them with the decoder of a tiny autoencoder: what previews need of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.autoencoder import autoencoder_dtype
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.resident.residence import Residence
from comfyserverless.models.resident.skeleton import Runner
from comfyserverless.models.tiny.halves import load_half


class TinyDecoder:
    """The decoder of one file on its device."""

    def __init__(self, runner: Runner[nn.Sequential], channels: int, path: str) -> None:
        self.residents = (runner.base,)
        self._runner = runner
        self._channels = channels
        self._path = path

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Return pictures [B, 3, h * 8, w * 8] float32 on the CPU, mostly in 0..1.

        latents: [B, C, h, w], in the units of models. Raises ModelFileError for another number of channels.
        """
        if latents.ndim != 4 or latents.shape[1] != self._channels:
            raise ModelFileError(
                f"{self._path}: decodes latents of {self._channels} channels, not {list(latents.shape)}"
            )
        device = self._runner.device
        with self._runner.running() as network:
            decoded: Tensor = network(latents.to(device, autoencoder_dtype(device)))
            return decoded.float().cpu()


def load_decoder(root: Weights, residence: Residence) -> TinyDecoder:
    """Make the decoder of a file ready to run. Raises ModelFileError if it holds none."""
    runner, channels = load_half("decoder", root, residence)
    return TinyDecoder(runner, channels, root.path)
