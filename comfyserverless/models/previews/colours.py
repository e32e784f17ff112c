"""Show latents as small pictures without decoding them: one linear map from channels to colours.

The map is fitted by least squares to what the model's own autoencoder makes of random latents, so that it
holds for any autoencoder and no table of numbers is carried along.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from comfyserverless.models.autoencoder import Autoencoder

_SEED = 0
_PICTURES = 4
_CELLS = 16
_PATCH_CELLS = 4
_LATENT_STD = 6.0
"""About 1 / scale factor of the Stable Diffusion families: the spread of latents in output units."""


class LatentColours:
    """A linear map from latent channels to RGB; factors: [C + 1, 3], the last row is the offset."""

    def __init__(self, factors: Tensor) -> None:
        self.factors = factors

    def latent_to_rgb(self, samples: Tensor) -> Tensor:
        """Return the first latent of samples [B, C, h, w] (output units) as uint8 [h, w, 3]."""
        latent = samples[0].movedim(0, -1).float().cpu()
        rgb = latent @ self.factors[:-1] + self.factors[-1]
        return to_levels(rgb)


def to_levels(picture: Tensor) -> Tensor:
    """Return a picture of any shape, in 0..1 or beyond, as uint8 in 0..255."""
    return (picture.clamp(0.0, 1.0) * 255.0).round().to(torch.uint8)


def fit_colours(vae: Autoencoder) -> LatentColours:
    """Fit the map to pictures that `vae` decodes from patches of random colour.

    Raises ArithmeticError if they hold what is no number.
    """
    generator = torch.Generator().manual_seed(_SEED)
    shape = (_PICTURES, vae.latent_channels, _CELLS // _PATCH_CELLS, _CELLS // _PATCH_CELLS)
    coarse = torch.randn(shape, generator=generator) * _LATENT_STD
    latents = F.interpolate(coarse, size=(_CELLS, _CELLS), mode="nearest")
    colours = F.avg_pool2d(vae.decode(latents).movedim(-1, 1), vae.downscale_px)
    if not colours.isfinite().all():
        raise ArithmeticError("the autoencoder's pictures are not finite")
    inputs = F.pad(latents.movedim(1, -1).reshape(-1, vae.latent_channels), (0, 1), value=1.0)
    return LatentColours(torch.linalg.lstsq(inputs, colours.movedim(1, -1).reshape(-1, 3)).solution)


def guess_colours(latent_channels: int) -> LatentColours:
    """Return a plain map for models whose autoencoder is not at hand: three channels are the colours."""
    factors = torch.zeros(latent_channels + 1, 3)
    for channel in range(3):
        factors[channel, channel] = 0.5 / _LATENT_STD
    factors[-1] = 0.5
    return LatentColours(factors)
