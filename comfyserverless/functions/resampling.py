"""Resize channel-first batches the ways that ComfyUI's scaling nodes offer, bit for bit where torch allows."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.limits.room import check_room
from comfyserverless.sampling.resizing import RESIZE_METHODS, resize

METHODS = (*RESIZE_METHODS, "lanczos")
CROPS = ("disabled", "center")


def resample(x: Tensor, width: int, height: int, method: str, crop: str) -> Tensor:
    """Resize a batch, after cutting it to the target's ratio if crop is `center`.

    x: [B, C, H, W] float, any strides; unchanged. width, height: of the result, above 0. `lanczos` is for
    images: it goes through 8 bits per value and takes 1, 3 or 4 channels.
    Returns [B, C, height, width] in x's dtype. Raises PromptError for a size, method or crop that is not
    offered, and what `check_room` raises.
    """
    if width < 1 or height < 1:
        raise PromptError(f"cannot scale to {width}x{height}: both sides must be at least 1")
    if x.ndim != 4 or 0 in x.shape:
        raise PromptError(f"cannot scale a batch of shape {list(x.shape)}: four sides above 0 are needed")
    if method not in METHODS:
        raise PromptError(f"scaling method {method!r} is none of {', '.join(METHODS)}")
    if crop not in CROPS:
        raise PromptError(f"crop {crop!r} is none of {', '.join(CROPS)}")
    if crop == "center":
        x = _crop_to_ratio(x, width, height)
    check_room((*x.shape[:2], height, width), "pictures or latents")
    return _lanczos(x, width, height) if method == "lanczos" else resize(x, width, height, method)


def _crop_to_ratio(x: Tensor, width: int, height: int) -> Tensor:
    """Cut equal margins off the longer side so that the ratio is that of width x height, to whole cells."""
    from_height, from_width = x.shape[-2:]
    from_ratio, to_ratio = from_width / from_height, width / height
    left = top = 0
    if from_ratio > to_ratio:
        left = round((from_width - from_width * (to_ratio / from_ratio)) / 2)
    elif from_ratio < to_ratio:
        top = round((from_height - from_height * (from_ratio / to_ratio)) / 2)
    left, top = min(left, (from_width - 1) // 2), min(top, (from_height - 1) // 2)  # something must be left
    return x[..., top : from_height - top, left : from_width - left]


def _lanczos(x: Tensor, width: int, height: int) -> Tensor:
    if x.shape[1] not in (1, 3, 4):
        raise PromptError(f"lanczos scales images with 1, 3 or 4 channels, not {x.shape[1]}")
    scaled = [
        np.asarray(Image.fromarray(item).resize((width, height), Image.Resampling.LANCZOS))
        for item in to_8bit(x.movedim(1, -1))
    ]
    stacked = torch.from_numpy(np.stack(scaled).astype(np.float32) / 255.0)
    return stacked.reshape(x.shape[0], height, width, x.shape[1]).movedim(-1, 1).to(x.device, x.dtype)


def to_8bit(images: Tensor) -> list[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    """Turn 0..1 into 0..255, cut off at both ends and truncated; what is no number becomes 0.

    images: [B, H, W, C] float. Returns B arrays [H, W, C] uint8, without the last dimension if C is 1.
    """
    scaled = (images.detach().float().cpu() * 255.0).nan_to_num(nan=0.0).clamp(0, 255).to(torch.uint8)
    if scaled.shape[-1] == 1:
        scaled = scaled[..., 0]
    return list(scaled.contiguous().numpy())
