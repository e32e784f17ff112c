"""Join many batches to one, and pick items of many batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.host import HostFn
from comfyserverless.functions.images.fitting import fit_channels, fit_mask, fit_size
from comfyserverless.functions.limits.room import check_room
from comfyserverless.functions.mask import batch_of_masks
from comfyserverless.functions.resampling import resample

#: Pixels per latent cell that a noise mask has where a latent has none.
_CELL_PX = 8


class ImageJoin(HostFn):
    """Put batches of images into one."""

    name = "image.join"
    takes = "parts"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return all, in the size of the first, with an opaque alpha if only some have alpha."""
        parts: Sequence[Tensor] = inputs["parts"]
        channels = max(part.shape[-1] for part in parts)
        like = parts[0]
        _check_total(parts, (*like.shape[1:3], channels), "images")
        return {
            "images": torch.cat([fit_size(fit_channels(part, channels), like, "bilinear") for part in parts])
        }


class MaskJoin(HostFn):
    """Put batches of masks into one."""

    name = "mask.join"
    takes = "parts"
    gives = "mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return all as [B, H, W], in the size of the first."""
        parts = [batch_of_masks(part) for part in inputs["parts"]]
        height, width = parts[0].shape[1:]
        _check_total(parts, (height, width), "masks")
        return {"mask": torch.cat([fit_mask(part, height, width, crop="center") for part in parts])}


class LatentJoin(HostFn):
    """Put batches of latents into one."""

    name = "latent.join"
    takes = "parts"
    gives = "samples"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return all, in the size of the first. Raises PromptError if they are of different families."""
        parts: Sequence[Tensor] = inputs["parts"]
        height, width = parts[0].shape[-2:]
        channels = {part.shape[1] for part in parts}
        if len(channels) > 1:
            raise PromptError(f"latents with {sorted(channels)} channels are of different families")
        _check_total(parts, parts[0].shape[1:], "latents")

        def fit(part: Tensor) -> Tensor:
            return (
                part
                if part.shape[-2:] == (height, width)
                else resample(part, width, height, "bilinear", "center")
            )

        return {"samples": torch.cat([fit(part) for part in parts])}


class LatentPick(HostFn):
    """Make a batch of items of other batches."""

    name = "latent.pick"
    takes = "parts masks picks"
    gives = "samples noise_mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the picked items, and their noise masks, None if no part has one.

        masks: of the parts, None for one without; repeated to its items. picks: lists of [part, first, end].
        """
        parts, masks, picks = inputs["parts"], inputs["masks"], inputs["picks"]
        samples = torch.cat([parts[part][first:end] for part, first, end in picks])
        if all(mask is None for mask in masks):
            return {"samples": samples, "noise_mask": None}
        height, width = (side * _CELL_PX for side in samples.shape[-2:])
        full = [_mask_per_item(part, mask, height, width) for part, mask in zip(parts, masks, strict=True)]
        return {
            "samples": samples,
            "noise_mask": torch.cat([full[part][first:end] for part, first, end in picks]),
        }


class ImagePick(HostFn):
    """Make a batch of items of other batches."""

    name = "image.pick"
    takes = "parts picks"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the picked items; picks: lists of [part, first, end]; all parts have one size."""
        parts = inputs["parts"]
        return {"images": torch.cat([parts[part][first:end] for part, first, end in inputs["picks"]])}


class MaskScale(HostFn):
    """Resize masks."""

    name = "mask.scale"
    takes = "mask width height method crop"
    gives = "mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return [B, height, width]; see `resampling.resample`."""
        masks = batch_of_masks(inputs["mask"])[:, None]
        scaled = resample(masks, inputs["width"], inputs["height"], inputs["method"], inputs["crop"])
        return {"mask": scaled[:, 0]}


def _mask_per_item(part: Tensor, mask: Tensor | None, height: int, width: int) -> Tensor:
    count = part.shape[0]
    if mask is None:
        return torch.ones(count, height, width)
    masks = fit_mask(mask, height, width)
    return masks.repeat(-(-count // masks.shape[0]), 1, 1)[:count]


def _check_total(parts: Sequence[Tensor], item: Sequence[int], what: str) -> None:
    check_room((sum(part.shape[0] for part in parts), *item), what)


FUNCTIONS: tuple[Callable[[], HostFn], ...] = (
    ImageJoin,
    MaskJoin,
    LatentJoin,
    LatentPick,
    ImagePick,
    MaskScale,
)
"""The functions of this module."""
