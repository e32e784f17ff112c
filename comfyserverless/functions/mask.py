"""Make, grow, feather and combine masks on the CPU lane.

MASK is [B, H, W] float32, 1 where masked; a mask without the batch counts as a batch of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.host import HostFn
from comfyserverless.functions.limits.room import check_room

CHANNELS = ("red", "green", "blue", "alpha")
"""The channels of an image, in their order."""


class MaskSolid(HostFn):
    """Make a mask of one value."""

    name = "mask.solid"
    takes = "value width height"
    gives = "mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return mask [1, height, width]."""
        shape = (1, inputs["height"], inputs["width"])
        check_room(shape, "masks")
        return {"mask": torch.full(shape, float(inputs["value"]))}


class MaskInvert(HostFn):
    """Swap what is masked and what is not."""

    name = "mask.invert"
    takes = "mask"
    gives = "mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return 1 - mask."""
        return {"mask": 1.0 - inputs["mask"]}


class MaskCrop(HostFn):
    """Cut a part out of masks."""

    name = "mask.crop"
    takes = "mask x y width height"
    gives = "mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the part of at most width x height from (x, y) on; at least one pixel is left."""
        mask = batch_of_masks(inputs["mask"])
        x, y = min(inputs["x"], mask.shape[2] - 1), min(inputs["y"], mask.shape[1] - 1)
        return {"mask": mask[:, y : y + inputs["height"], x : x + inputs["width"]]}


class MaskThreshold(HostFn):
    """Make a mask hard."""

    name = "mask.threshold"
    takes = "mask value"
    gives = "mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return 1 where the mask is above the value, else 0."""
        return {"mask": (inputs["mask"] > inputs["value"]).float()}


class MaskToImage(HostFn):
    """Show a mask as a gray image."""

    name = "mask.to_image"
    takes = "mask"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return images [B, H, W, 3]."""
        return {"images": batch_of_masks(inputs["mask"])[..., None].expand(-1, -1, -1, 3)}


class ImageToMask(HostFn):
    """Take one channel of images as a mask."""

    name = "image.to_mask"
    takes = "images channel"
    gives = "mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return mask [B, H, W]. Raises PromptError if the images lack the channel."""
        images, channel = inputs["images"], inputs["channel"]
        index = CHANNELS.index(channel)
        if index >= images.shape[-1]:
            raise PromptError(f"the image has {images.shape[-1]} channels and no {channel} among them")
        return {"mask": images[..., index]}


class MaskGrow(HostFn):
    """Grow or shrink the masked parts by pixels."""

    name = "mask.grow"
    takes = "mask expand tapered_corners"
    gives = "mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the mask grown by `expand` pixels, shrunk where it is negative.

        Parts grow to squares, or to diamonds with tapered corners; what lies beyond the border plays no part.
        """
        mask, expand = batch_of_masks(inputs["mask"]), inputs["expand"]
        if expand < 0:
            return {"mask": -_dilate(-mask, -expand, inputs["tapered_corners"])}
        return {"mask": _dilate(mask, expand, inputs["tapered_corners"])}


class MaskFeather(HostFn):
    """Fade a mask out towards its borders."""

    name = "mask.feather"
    takes = "mask left top right bottom"
    gives = "mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the mask times a ramp per side, over as many pixels as the side's input says.

        Compatibility (ComfyUI 0.8): the ramps of the right and the bottom start one pixel outside, and their
        first, darkest value falls on the first column or row instead.
        """
        mask = batch_of_masks(inputs["mask"])
        height, width = mask.shape[-2:]
        across, down = torch.arange(width), torch.arange(height)
        mask = mask * _ramp(across, inputs["left"], width) * _ramp(-across % width, inputs["right"], width)
        mask = mask * _ramp(down, inputs["top"], height)[:, None]
        return {"mask": mask * _ramp(-down % height, inputs["bottom"], height)[:, None]}


def _as_bits(combine: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda a, b: combine(a.round().bool(), b.round().bool()).float()


OPERATIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = MappingProxyType(
    {
        "multiply": torch.mul,
        "add": torch.add,
        "subtract": torch.sub,
        "and": _as_bits(torch.logical_and),
        "or": _as_bits(torch.logical_or),
        "xor": _as_bits(torch.logical_xor),
    }
)
"""How a source is put on a destination, by ComfyUI's names."""


class MaskComposite(HostFn):
    """Combine a mask with a part of another one."""

    name = "mask.composite"
    takes = "destination source x y operation"
    gives = "mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the destination, cut off to 0..1, with the source combined in from (x, y) on.

        Raises PromptError if the batches do not fit.
        """
        output = batch_of_masks(inputs["destination"]).clone()
        source, x, y = batch_of_masks(inputs["source"]), inputs["x"], inputs["y"]
        if source.shape[0] not in (1, output.shape[0]):
            raise PromptError(
                f"a batch of {source.shape[0]} masks cannot be put on a batch of {output.shape[0]}: one mask,"
                " or as many, are needed"
            )
        part = output[:, y : y + source.shape[1], x : x + source.shape[2]]
        part.copy_(OPERATIONS[inputs["operation"]](part, source[:, : part.shape[1], : part.shape[2]]))
        return {"mask": output.clamp(0.0, 1.0)}


def batch_of_masks(mask: Tensor) -> Tensor:
    """View [H, W], [B, H, W] or [B, 1, H, W] as [B, H, W]."""
    return mask.reshape(-1, mask.shape[-2], mask.shape[-1])


def _dilate(mask: Tensor, steps: int, tapered: bool) -> Tensor:
    """Take `steps` times the largest value of each pixel's neighbourhood: a plus if tapered, else a square."""
    for _ in range(steps):
        wide = mask.clone()
        _raise_to_neighbours(wide, mask, axis=2)
        grown = wide.clone()
        _raise_to_neighbours(grown, mask if tapered else wide, axis=1)
        if torch.equal(grown, mask):  # nothing is left to grow into
            break
        mask = grown
    return mask


def _raise_to_neighbours(target: Tensor, source: Tensor, axis: int) -> None:
    """Raise each pixel of the target, in place, to its two neighbours in the source along an axis."""
    last = source.shape[axis] - 1
    for to, come_from in ((0, 1), (1, 0)):
        part = target.narrow(axis, to, last)
        torch.maximum(part, source.narrow(axis, come_from, last), out=part)


def _ramp(distances: Tensor, length: int, side: int) -> Tensor:
    """Return factors 1 / length, 2 / length ... for distances 0, 1 ... below length (at most side), else 1."""
    length = max(1, min(length, side))
    return ((distances.double() + 1.0) / length).clamp(max=1.0).float()
