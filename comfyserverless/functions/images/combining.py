"""Join, blend and composite images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.host import HostFn
from comfyserverless.functions.images.fitting import (
    fit_channels,
    fit_mask,
    fit_size,
    paste,
)
from comfyserverless.functions.limits.room import check_room
from comfyserverless.sampling.stacking import fit_batch

_RGB = 3


class ImageBatch(HostFn):
    """Put two batches into one."""

    name = "image.batch"
    takes = "first second"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return both, the second one in the size of the first, with an opaque alpha if only one has alpha."""
        first, second = inputs["first"], inputs["second"]
        channels = max(first.shape[-1], second.shape[-1])
        second = fit_size(fit_channels(second, channels), first, "bilinear")
        return {"images": torch.cat([fit_channels(first, channels), second])}


def _soft_light(a: Tensor, b: Tensor) -> Tensor:
    """Darken or lighten (W3C Compositing and Blending Level 1, 10.1.9, "soft-light")."""
    curve = torch.where(a <= 0.25, ((16 * a - 12) * a + 4) * a, a.clamp(min=0.0).sqrt())
    return torch.where(b <= 0.5, a - (1 - 2 * b) * a * (1 - a), a + (2 * b - 1) * (curve - a))


def _overlay(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(a <= 0.5, 2 * a * b, 1 - 2 * (1 - a) * (1 - b))


BLENDS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = MappingProxyType(
    {
        "normal": lambda a, b: b,
        "multiply": torch.mul,
        "screen": lambda a, b: 1 - (1 - a) * (1 - b),
        "overlay": _overlay,
        "soft_light": _soft_light,
        "difference": torch.sub,
    }
)
"""How the second image is laid on the first, by ComfyUI's names."""


class ImageBlend(HostFn):
    """Lay one image on another."""

    name = "image.blend"
    takes = "first second factor mode"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the first image, by `factor` changed into what both give in a blend mode.

        Raises PromptError if the batches do not fit.
        """
        first = inputs["first"]
        second = fit_size(fit_channels(inputs["second"], first.shape[-1]), first, "bicubic")
        _check_batches(first, second)
        factor = inputs["factor"]
        blended = BLENDS[inputs["mode"]](first, second)
        return {"images": (first * (1 - factor) + blended * factor).clamp(0.0, 1.0)}


class ImageComposite(HostFn):
    """Put one image on another, where a mask shows it."""

    name = "image.composite"
    takes = "destination source mask x y resize_source"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the destination with the source put on it from (x, y) on, as far as it reaches.

        resize_source: give it the destination's size first. mask: 1 where the source is seen; None: everywhere.
        """
        destination = inputs["destination"]
        source = fit_channels(inputs["source"], destination.shape[-1])
        if inputs["resize_source"]:
            source = fit_size(source, destination, "bilinear", "disabled")
        put = paste(destination.movedim(-1, 1), source.movedim(-1, 1), inputs["mask"], inputs["x"], inputs["y"])
        return {"images": put.movedim(1, -1)}


class ImageSplitAlpha(HostFn):
    """Take images and their transparency apart."""

    name = "image.split_alpha"
    takes = "images"
    gives = "images mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return images [B, H, W, 3], and a mask [B, H, W] that is 1 - alpha: 0 without an alpha channel."""
        images = inputs["images"]
        alpha = images[..., _RGB] if images.shape[-1] > _RGB else torch.ones(images.shape[:-1])
        return {"images": images[..., :_RGB], "mask": 1.0 - alpha}


class ImageJoinAlpha(HostFn):
    """Give images the transparency of a mask."""

    name = "image.join_alpha"
    takes = "images alpha"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return images [B, H, W, 4] whose alpha is 1 - mask; the shorter batch is repeated."""
        images = inputs["images"]
        masks = fit_mask(inputs["alpha"], *images.shape[1:3])
        count = max(images.shape[0], masks.shape[0])
        rgb = fit_batch(images[..., :_RGB], count)
        return {"images": torch.cat([rgb, 1.0 - fit_batch(masks, count)[..., None]], dim=-1)}


_FILLS: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {
        "white": (1.0, 1.0, 1.0),
        "black": (0.0, 0.0, 0.0),
        "red": (1.0, 0.0, 0.0),
        "green": (0.0, 1.0, 0.0),
        "blue": (0.0, 0.0, 1.0),
    }
)


class ImageStitch(HostFn):
    """Put one image beside another."""

    name = "image.stitch"
    takes = "first second direction matches_size spacing color"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return both in one image, the second one on the side `direction` of the first.

        matches_size: the second gets the common side's length, keeping its ratio; else the smaller one is
        centred on black. spacing: pixels of `color` between them. The shorter batch repeats its last item.
        """
        first, second, direction = inputs["first"], inputs["second"], inputs["direction"]
        axis, common = (2, 1) if direction in ("left", "right") else (1, 2)
        if inputs["matches_size"]:
            second = _scale_side(second, common, first.shape[common])
        channels = max(first.shape[-1], second.shape[-1])
        longest = max(first.shape[common], second.shape[common])
        count = max(first.shape[0], second.shape[0])
        parts = [
            _extend(_pad_centred(fit_channels(image, channels), common, longest), count)
            for image in (first, second)
        ]
        if direction in ("left", "up"):
            parts.reverse()
        if inputs["spacing"]:
            parts.insert(1, _spacer(parts[0], axis, inputs["spacing"], _FILLS[inputs["color"]]))
        return {"images": torch.cat(parts, dim=axis)}


def _scale_side(images: Tensor, axis: int, length: int) -> Tensor:
    """Give one side of images a length, keeping the ratio."""
    height, width = images.shape[1:3]
    if axis == 1:
        height, width = length, max(1, int(length * (width / height)))
    else:
        height, width = max(1, int(length / (width / height))), length
    return fit_size(images, images.new_empty(0, height, width), "lanczos", "disabled")


def _pad_centred(images: Tensor, axis: int, length: int) -> Tensor:
    missing = length - images.shape[axis]
    if not missing:
        return images
    shape = list(images.shape)
    shape[axis] = length
    check_room(shape, "images")
    padded = images.new_zeros(shape)
    padded.narrow(axis, missing // 2, images.shape[axis]).copy_(images)
    return padded


def _extend(images: Tensor, count: int) -> Tensor:
    missing = count - images.shape[0]
    check_room((count, *images.shape[1:]), "images")
    return torch.cat([images, images[-1:].repeat(missing, 1, 1, 1)]) if missing else images


def _spacer(like: Tensor, axis: int, spacing: int, fill: tuple[float, float, float]) -> Tensor:
    """Return a strip of one colour, an even number of pixels wide."""
    shape = list(like.shape)
    shape[axis] = spacing + spacing % 2
    strip = like.new_ones(shape)
    strip[..., :_RGB] = torch.tensor(fill)
    return strip


def _check_batches(first: Tensor, second: Tensor) -> None:
    if 1 not in (first.shape[0], second.shape[0]) and first.shape[0] != second.shape[0]:
        raise PromptError(
            f"a batch of {second.shape[0]} images cannot be blended with one of {first.shape[0]}: one image, or"
            " as many, are needed"
        )
