"""Scale the frequencies of maps."""

from __future__ import annotations

import torch
from torch import Tensor


def scale_low_frequencies(
    x: Tensor, cutoff: int, low: float, high: float = 1.0, is_mean_low: bool = False
) -> Tensor:
    """Multiply frequencies below `cutoff` cycles per map by `low`, the others by `high`.

    x: [B, C, h, w]; computed in float32. is_mean_low: the mean is a low frequency along sides of a single cell
    too. Returns x's dtype.
    """
    spectrum = torch.fft.fftshift(torch.fft.fftn(x.float(), dim=(-2, -1)), dim=(-2, -1))
    mask = torch.full(spectrum.shape, high, device=x.device)
    (top, bottom), (left, right) = (_middle(side, cutoff, is_mean_low) for side in x.shape[-2:])
    mask[..., top:bottom, left:right] = low
    back = torch.fft.ifftshift(spectrum * mask, dim=(-2, -1))
    result: Tensor = torch.fft.ifftn(back, dim=(-2, -1)).real.to(x.dtype)
    return result


def _middle(side: int, cutoff: int, is_mean_low: bool) -> tuple[int, int]:
    center = side // 2
    reach = min(cutoff, center)
    return (0, 1) if is_mean_low and side == 1 else (center - reach, center + reach)
