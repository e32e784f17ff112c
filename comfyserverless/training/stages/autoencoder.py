"""Learn the autoencoder: the encoder computes the hand-laid latent, the decoder draws the picture from it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from comfyserverless.training.loop import Pace, Turn
from comfyserverless.training.networks.slim_autoencoder import SlimAutoencoder
from comfyserverless.training.scenery.latents import CELL_PX, latent_of, pixels_of
from comfyserverless.training.scenery.world import Picture

_CROP_PX = 64
_EDGE_WEIGHT = 0.7
_ENCODER_WEIGHT = 1.0
_MOST_NOISE = 0.15
"""Noise on the latents that the decoder sees, as the denoiser leaves some; in units of their spread."""


class AutoencoderStage:
    """Crops of pictures; the encoder, whose task is easier, learns on half of each batch."""

    name = "autoencoder"

    def __init__(self, pace: Pace, pictures: Sequence[Picture], batch: int) -> None:
        self.pace = pace
        self.module = SlimAutoencoder()
        self._pictures = pictures
        self._batch = batch

    def loss(self, turn: Turn) -> Tensor:
        """Return the error of drawn pixels, their edges, and computed latents."""
        crops = [self._crop(turn.own) for _ in range(self._batch)]
        pixels = torch.stack([pixels_of(crop) for crop in crops])
        latents = torch.stack([latent_of(crop) for crop in crops])
        noise = torch.randn(latents.shape, generator=turn.own) * torch.rand(
            len(crops), 1, 1, 1, generator=turn.own
        )
        drawn = self.module.decoder(latents + _MOST_NOISE * noise)
        loss = F.l1_loss(drawn, pixels) + 0.5 * F.mse_loss(drawn, pixels)
        for axis in (2, 3):
            loss = loss + _EDGE_WEIGHT * F.l1_loss(drawn.diff(dim=axis), pixels.diff(dim=axis))
        half = (len(crops) + 1) // 2
        return loss + _ENCODER_WEIGHT * F.mse_loss(self.module.encoder(pixels[:half]), latents[:half])

    def matrices(self) -> list[nn.Parameter]:
        """Return nothing: all learn with AdamW."""
        return []

    def _crop(self, generator: torch.Generator) -> Picture:
        def below(end: int) -> int:
            return int(torch.randint(end, (), generator=generator))

        picture = self._pictures[below(len(self._pictures))]
        y, x = (below((side - _CROP_PX) // CELL_PX + 1) * CELL_PX for side in picture.shape[:2])
        return picture[y : y + _CROP_PX, x : x + _CROP_PX]
