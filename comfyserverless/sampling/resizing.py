"""Resize latents, and other channel-first batches, bit for bit as ComfyUI does where torch allows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

RESIZE_METHODS = ("nearest-exact", "bilinear", "area", "bicubic", "bislerp")


def resize(x: Tensor, width: int, height: int, method: str) -> Tensor:
    """Return x [B, C, H, W] as [B, C, height, width] in its dtype; method: one of RESIZE_METHODS."""
    if method == "bislerp":
        return bislerp(x, width, height)
    return functional.interpolate(x, size=(height, width), mode=method)


def bislerp(x: Tensor, width: int, height: int) -> Tensor:
    """Resize by spherical interpolation of the channel vectors between neighbours, along W, then along H.

    x: [B, C, H, W]; computed in float32. The length of a vector is interpolated linearly, its direction on the
    great circle (Shoemake 1985). Returns [B, C, height, width] in x's dtype.
    """
    wide = _slerp_along(x.float(), 3, width)
    return _slerp_along(wide, 2, height).to(x.dtype)


def _slerp_along(x: Tensor, axis: int, length: int) -> Tensor:
    from_length = x.shape[axis]
    centers = (torch.arange(length, dtype=torch.float32, device=x.device) + 0.5) * (from_length / length) - 0.5
    positions = centers.clamp(0, from_length - 1)
    lower = positions.floor()
    ratio_shape = [1] * x.ndim
    ratio_shape[axis] = length
    ratio = (positions - lower).reshape(ratio_shape)
    first = lower.long()
    second = (first + 1).clamp(max=from_length - 1)
    return _slerp(x.index_select(axis, first), x.index_select(axis, second), ratio)


# Nearer to parallel or opposite than this, the great circle is not well defined.
_PARALLEL_GAP = 1e-5


def _slerp(a: Tensor, b: Tensor, ratio: Tensor) -> Tensor:
    """Interpolate between vectors along dimension 1. a, b: [B, C, H, W]; ratio: 0..1, broadcast."""
    length_a = a.norm(dim=1, keepdim=True)
    length_b = b.norm(dim=1, keepdim=True)
    unit_a = torch.where(length_a == 0, torch.zeros_like(a), a / length_a)
    unit_b = torch.where(length_b == 0, torch.zeros_like(b), b / length_b)
    cosine = (unit_a * unit_b).sum(dim=1, keepdim=True)
    angle = cosine.clamp(-1, 1).acos()
    direction = (((1 - ratio) * angle).sin() * unit_a + (ratio * angle).sin() * unit_b) / angle.sin()
    on_circle = direction * (length_a * (1 - ratio) + length_b * ratio)
    result = torch.where(cosine > 1 - _PARALLEL_GAP, a, on_circle)
    return torch.where(cosine < _PARALLEL_GAP - 1, a * (1 - ratio) + b * ratio, result)
