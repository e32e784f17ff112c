"""Show a latent as a small picture without decoding it: one linear map from latent channels to RGB.

The map is fitted once per autoencoder, by least squares, to what its own decoder makes of smooth random
latents, so that it suits every model, and costs a matrix product per preview.
"""

from __future__ import annotations

import io

import torch
from PIL import Image, ImageOps
from torch import Tensor

from comfyserverless.models.autoencoder import Autoencoder
from comfyserverless.models.families.base import ModelFacts

PREVIEW_PX = 512
"""Longer side of a preview."""

_JPEG_QUALITY = 85
_FIT_COUNT = 32
_FIT_CELLS = 4
_FIT_SEED = 0


def fit_latent_to_rgb(vae: Autoencoder, facts: ModelFacts) -> Tensor:
    """Return [C + 1, 3] float32: RGB in 0..1 per channel of a latent in the model's units, and a constant."""
    generator = torch.Generator("cpu").manual_seed(_FIT_SEED)
    coarse = torch.randn([_FIT_COUNT, facts.latent_channels, 2, 2], generator=generator)
    latents = torch.nn.functional.interpolate(coarse, size=(_FIT_CELLS, _FIT_CELLS), mode="bilinear")
    images = vae.decode(latents / facts.scale_factor + facts.shift_factor)
    colours = torch.nn.functional.adaptive_avg_pool2d(images.movedim(-1, 1), _FIT_CELLS)
    rows = _with_constant(latents.movedim(1, -1).reshape(-1, facts.latent_channels))
    fitted: Tensor = torch.linalg.lstsq(rows, colours.movedim(1, -1).reshape(-1, 3)).solution
    return fitted


def latent_preview(latent: Tensor, latent_to_rgb: Tensor) -> bytes:
    """Return the first item of latent [B, C, h, w], in the model's units, as JPEG bytes."""
    cells = latent[0].float().cpu().movedim(0, -1)
    pixels = (_with_constant(cells) @ latent_to_rgb).clamp(0, 1).mul(255).round().to(torch.uint8)
    image = ImageOps.contain(
        Image.fromarray(pixels.numpy()), (PREVIEW_PX, PREVIEW_PX), Image.Resampling.BICUBIC
    )
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=_JPEG_QUALITY)
    return buffer.getvalue()


def _with_constant(cells: Tensor) -> Tensor:
    return torch.cat([cells, torch.ones([*cells.shape[:-1], 1])], dim=-1)
