"""Make, invert, cut and widen images on the CPU lane.

IMAGE is [B, H, W, 3 or 4] float32 in 0..1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from comfyserverless.functions.host import HostFn
from comfyserverless.functions.limits.room import check_room

_GRAY = 0.5


class ImageEmpty(HostFn):
    """Make images of one colour."""

    name = "image.empty"
    takes = "width height batch_size color"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return images [batch_size, height, width, 3] of the colour 0xRRGGBB."""
        shape = (inputs["batch_size"], inputs["height"], inputs["width"], 3)
        check_room(shape, "images")
        color = inputs["color"]
        rgb = torch.tensor([(color >> shift & 0xFF) / 0xFF for shift in (16, 8, 0)], dtype=torch.float32)
        return {"images": rgb.expand(shape)}


class ImageInvert(HostFn):
    """Turn images into their negatives."""

    name = "image.invert"
    takes = "images"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return 1 - images."""
        return {"images": 1.0 - inputs["images"]}


class ImageCrop(HostFn):
    """Cut a part out of images."""

    name = "image.crop"
    takes = "images x y width height"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the part of at most width x height from (x, y) on; at least one pixel is left."""
        images: Tensor = inputs["images"]
        x, y = min(inputs["x"], images.shape[2] - 1), min(inputs["y"], images.shape[1] - 1)
        return {"images": images[:, y : y + inputs["height"], x : x + inputs["width"]]}


class ImagePad(HostFn):
    """Widen images with gray, and mask what is to be painted there."""

    name = "image.pad"
    takes = "images left top right bottom feathering"
    gives = "images mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the widened images, and a mask [1, H, W] for all of them.

        The mask is 1 on what is new, and fades out over `feathering` pixels into the image from the sides that
        were widened. An image that is too small for fading on both sides has none.
        """
        images: Tensor = inputs["images"]
        left, top, right, bottom = (inputs[side] for side in ("left", "top", "right", "bottom"))
        count, height, width, channels = images.shape
        shape = (count, top + height + bottom, left + width + right, channels)
        check_room(shape, "images")
        padded = torch.full(shape, _GRAY)
        padded[:, top : top + height, left : left + width] = images
        mask = torch.ones(1, *shape[1:3])
        mask[:, top : top + height, left : left + width] = 0.0
        feathering = inputs["feathering"]
        if 0 < feathering * 2 < min(height, width):
            across = _distances(width, left > 0, right > 0)
            down = _distances(height, top > 0, bottom > 0)
            distances = torch.minimum(down[:, None], across[None, :])
            fade = ((feathering - distances) / feathering).clamp(min=0.0) ** 2
            mask[0, top : top + height, left : left + width] = fade.float()
        return {"images": padded, "mask": mask}


def _distances(length: int, from_start: bool, from_end: bool) -> Tensor:
    """Return how far each of `length` pixels is from the ends that count; infinity if none does."""
    places = torch.arange(length, dtype=torch.float64)
    far = torch.full_like(places, torch.inf)
    return torch.minimum(places if from_start else far, length - places if from_end else far)
