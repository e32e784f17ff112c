"""Scale the frequencies of maps."""

from __future__ import annotations

import torch
from torch import Tensor


def scale_low_frequencies(x: Tensor, cutoff: int, low: float, high: float = 1.0) -> Tensor:
    """Multiply frequencies below `cutoff` cycles per map by `low`, the others by `high`.

    x: [B, C, h, w]; computed in float32. Returns x's dtype.
    """
    spectrum = torch.fft.fftshift(torch.fft.fftn(x.float(), dim=(-2, -1)), dim=(-2, -1))
    mask = torch.full(spectrum.shape, high, device=x.device)
    (top, bottom), (left, right) = (_middle(side, cutoff) for side in x.shape[-2:])
    mask[..., top:bottom, left:right] = low
    back = torch.fft.ifftshift(spectrum * mask, dim=(-2, -1))
    result: Tensor = torch.fft.ifftn(back, dim=(-2, -1)).real.to(x.dtype)
    return result


def _middle(side: int, cutoff: int) -> tuple[int, int]:
    center = side // 2
    reach = min(cutoff, center)
    return center - reach, center + reach
