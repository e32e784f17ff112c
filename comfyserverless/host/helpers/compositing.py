"""Put latents or pictures on each other as `comfy_extras.nodes_mask.composite` does."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional

from comfyserverless.functions.images.fitting import paste
from comfyserverless.host.helpers.scaling import repeat_to_batch_size

_CELL_PX = 8


def composite(
    destination: Tensor, source: Tensor, x: int, y: int, mask: Tensor | None = None, *more: Any, **named: Any
) -> Tensor:
    """Return destination [B, C, H, W] with the source put on it from (x, y) on, as far as it reaches.

    Then, by position or name: multiplier, how many units of x and y a cell has (8: latents, 1: pictures);
    resize_source: give it the destination's size first. mask: 1 where the source is seen; None: everywhere.
    """
    options = {"multiplier": _CELL_PX, "resize_source": False} | dict(
        zip(("multiplier", "resize_source"), more, strict=False)
    )
    options |= named
    source = source.to(destination.device)
    if options["resize_source"]:
        source = functional.interpolate(source, size=tuple(destination.shape[-2:]), mode="bilinear")
    source = repeat_to_batch_size(source, destination.shape[0])
    step = int(options["multiplier"])
    left = max(-source.shape[3] * step, min(x, destination.shape[3] * step)) // step
    top = max(-source.shape[2] * step, min(y, destination.shape[2] * step)) // step
    return paste(destination, source, mask, left, top)


def reshape_latent_to(target_shape: Any, latent: Tensor, repeat_batch: bool = True) -> Tensor:
    """Give a latent [B, C, H, W] the sides of another, and with `repeat_batch` its batch."""
    if tuple(latent.shape[1:]) != tuple(target_shape[1:]):
        size = tuple(target_shape[-2:])
        latent = functional.interpolate(latent, size=size, mode="bilinear")
    return repeat_to_batch_size(latent, target_shape[0]) if repeat_batch else latent
