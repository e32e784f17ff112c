"""Resize batches as packs call for it: channel first, 4-D or with more dimensions in between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from comfyserverless.functions import resampling
from comfyserverless.sampling import resizing


def common_upscale(samples: Tensor, width: int, height: int, upscale_method: str, crop: str) -> Tensor:
    """Resize [B, C, ..., H, W] to [B, C, ..., height, width]; crop `center` cuts to the target's ratio first.

    upscale_method: one of ours, or a mode of torch's interpolation. Raises PromptError for what cannot be.
    """
    if samples.ndim == 4:
        return _resize(samples, width, height, upscale_method, crop)
    batch, channels, *between = samples.shape[:-2]
    frames = samples.reshape(batch, channels, -1, *samples.shape[-2:]).movedim(2, 1).flatten(0, 1)
    scaled = _resize(frames, width, height, upscale_method, crop)
    scaled = scaled.reshape(batch, math.prod(between), channels, height, width).movedim(1, 2)
    return scaled.reshape(batch, channels, *between, height, width)


def _resize(samples: Tensor, width: int, height: int, method: str, crop: str) -> Tensor:
    if method in resampling.METHODS:
        return resampling.resample(samples, width, height, method, "center" if crop == "center" else "disabled")
    return functional.interpolate(samples, size=(height, width), mode=method)


def bislerp(samples: Tensor, width: int, height: int) -> Tensor:
    """Resize [B, C, H, W] by spherical interpolation of the channel vectors."""
    return resizing.bislerp(samples, width, height)


def lanczos(samples: Tensor, width: int, height: int) -> Tensor:
    """Resize pictures [B, C, H, W] in 0..1 through 8 bits per value."""
    return resampling.resample(samples, width, height, "lanczos", "disabled")


def repeat_to_batch_size(tensor: Tensor, batch_size: int, dim: int = 0) -> Tensor:
    """Cut a dimension to `batch_size`, or repeat what is along it until there are so many."""
    length = tensor.shape[dim]
    if length < batch_size:
        repeats = [1] * tensor.ndim
        repeats[dim] = math.ceil(batch_size / length)
        tensor = tensor.repeat(repeats)
    return tensor.narrow(dim, 0, batch_size) if tensor.shape[dim] > batch_size else tensor


def resize_to_batch_size(tensor: Tensor, batch_size: int) -> Tensor:
    """Interpolate along the first dimension so that it has `batch_size` items; the ends stay."""
    length = tensor.shape[0]
    if length == batch_size:
        return tensor
    if length == 1 or batch_size == 1:
        return tensor[:1].repeat(batch_size, *[1] * (tensor.ndim - 1))
    at = torch.linspace(0, length - 1, batch_size, device=tensor.device)
    lower = at.floor().long()
    share = (at - lower).reshape(-1, *[1] * (tensor.ndim - 1)).to(tensor.dtype)
    return torch.lerp(tensor[lower], tensor[(lower + 1).clamp(max=length - 1)], share)


_MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}


def reshape_mask(input_mask: Tensor, output_shape: Sequence[int]) -> Tensor:
    """Fit a mask to [B, C, ...]: scaled to the sides, repeated over channels and batch."""
    sides = len(output_shape) - 2
    mask = input_mask
    if sides == 2:
        mask = mask.reshape(-1, 1, *mask.shape[-2:])
    elif sides == 3 and mask.ndim < 5:
        mask = mask.reshape(1, 1, -1, *mask.shape[-2:])
    elif sides == 1 and mask.ndim < 3:
        mask = mask.reshape(-1, 1, mask.shape[-1])
    mask = functional.interpolate(mask, size=tuple(output_shape[2:]), mode=_MODES[sides])
    if mask.shape[1] < output_shape[1]:
        mask = mask.repeat(1, output_shape[1], *[1] * sides)[:, : output_shape[1]]
    return repeat_to_batch_size(mask, output_shape[0])


def string_to_seed(data: Any) -> int:
    """Return a number of 32 bits that depends on a text or bytes: their CRC-32."""
    import zlib

    return zlib.crc32(data.encode() if isinstance(data, str) else bytes(data))
