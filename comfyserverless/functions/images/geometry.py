"""Turn, mirror, repeat and frame images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from comfyserverless.functions.host import HostFn
from comfyserverless.functions.limits.room import check_room
from comfyserverless.functions.resampling import resample


class ImageFlip(HostFn):
    """Mirror images."""

    name = "image.flip"
    takes = "images axis"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return images upside down for axis `x`, left side right for `y`."""
        return {"images": inputs["images"].flip(1 if inputs["axis"] == "x" else 2)}


class ImageRotate(HostFn):
    """Turn images by right angles."""

    name = "image.rotate"
    takes = "images turns"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return images turned clockwise by so many right angles."""
        return {"images": torch.rot90(inputs["images"], inputs["turns"], dims=(2, 1))}


class ImageRepeat(HostFn):
    """Repeat a batch."""

    name = "image.repeat"
    takes = "images amount"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the batch so many times."""
        images, amount = inputs["images"], inputs["amount"]
        check_room((images.shape[0] * amount, *images.shape[1:]), "images")
        return {"images": images.repeat(amount, 1, 1, 1)}


class ImageSlice(HostFn):
    """Take items out of a batch."""

    name = "image.slice"
    takes = "images start length"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return `length` items from item `start` on; at least one is left."""
        images = inputs["images"]
        start = min(inputs["start"], images.shape[0] - 1)
        return {"images": images[start : start + inputs["length"]]}


class ImageFrame(HostFn):
    """Fit images into a frame."""

    name = "image.frame"
    takes = "images width height color method"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return [B, height, width, C]: images as large as fit in their ratio, centred on a colour."""
        images, width, height = inputs["images"], inputs["width"], inputs["height"]
        shape = (images.shape[0], height, width, images.shape[3])
        check_room(shape, "images")
        scale = min(width / images.shape[2], height / images.shape[1])
        size = max(1, int(images.shape[2] * scale)), max(1, int(images.shape[1] * scale))
        scaled = resample(images.movedim(-1, 1), *size, inputs["method"], "disabled").movedim(1, -1)
        fill = 1.0 if inputs["color"] == "white" else 0.0
        framed = torch.full(shape, fill)
        left, top = (width - size[0]) // 2, (height - size[1]) // 2
        framed[:, top : top + size[1], left : left + size[0]] = scaled
        return {"images": framed}
