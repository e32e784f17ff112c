"""Fit noise masks to latents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def prepare_mask(noise_mask: Tensor, shape: Sequence[int], device: Any = "cpu") -> Tensor:
    """Resize a mask [H, W], [B, H, W] or [B, 1, H, W] bilinearly to a latent's shape [B, C, h, w]."""
    mask = noise_mask.reshape(-1, 1, noise_mask.shape[-2], noise_mask.shape[-1]).to(device).float()
    mask = torch.nn.functional.interpolate(mask, size=tuple(shape[-2:]), mode="bilinear")
    mask = mask.expand(-1, shape[1], -1, -1)
    if mask.shape[0] < shape[0]:
        mask = mask.repeat(math.ceil(shape[0] / mask.shape[0]), 1, 1, 1)
    return mask[: shape[0]]
