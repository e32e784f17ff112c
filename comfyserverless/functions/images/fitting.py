"""Make two images, or a mask and an image, fit each other before they are combined."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from comfyserverless.functions.mask import batch_of_masks
from comfyserverless.functions.resampling import resample
from comfyserverless.sampling.stacking import fit_batch


def fit_channels(images: Tensor, channels: int) -> Tensor:
    """Return images with so many channels: further ones are cut off, a missing alpha is opaque."""
    missing = channels - images.shape[-1]
    if missing <= 0:
        return images[..., :channels]
    return torch.cat([images, images.new_ones(*images.shape[:-1], missing)], dim=-1)


def fit_size(images: Tensor, like: Tensor, method: str, crop: str = "center") -> Tensor:
    """Return images [B, H, W, C] with the height and width of others."""
    height, width = like.shape[1:3]
    if images.shape[1:3] == (height, width):
        return images
    return resample(images.movedim(-1, 1), width, height, method, crop).movedim(1, -1)


def fit_mask(mask: Tensor, height: int, width: int, method: str = "bilinear", crop: str = "disabled") -> Tensor:
    """Return a mask as [B, height, width]."""
    masks = batch_of_masks(mask)
    if masks.shape[1:] == (height, width):
        return masks
    return resample(masks[:, None], width, height, method, crop)[:, 0]


def paste(destination: Tensor, source: Tensor, mask: Tensor | None, left: int, top: int) -> Tensor:
    """Return a copy of a channel-first batch with another one put on it, as far as it reaches.

    destination: [B, C, H, W]; source: [B', C, h, w], repeated or cut to B items; mask: 1 where the source is
    seen, resized to the source, everywhere if None.
    """
    result = destination.clone()
    source = fit_batch(source, result.shape[0])
    part = result[..., top : top + source.shape[2], left : left + source.shape[3]]
    if mask is None:
        shown = torch.ones(1, 1, *source.shape[2:])
    else:
        scaled = functional.interpolate(batch_of_masks(mask)[:, None], size=source.shape[2:], mode="bilinear")
        shown = fit_batch(scaled, source.shape[0])
    shown = shown[..., : part.shape[2], : part.shape[3]]
    part.copy_(shown * source[..., : part.shape[2], : part.shape[3]] + (1.0 - shown) * part)
    return result
