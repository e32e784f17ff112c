"""Take images apart by colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.host import HostFn

# Weights of red, green and blue in brightness, and the ranges of the two differences to it (ITU-R BT.601).
_LUMA = (0.299, 0.587, 0.114)
_BLUE_SCALE, _RED_SCALE = 0.564, 0.713
_MIDDLE = 0.5


class ImageColorMask(HostFn):
    """Find the pixels of one colour."""

    name = "image.color_mask"
    takes = "images color"
    gives = "mask"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return mask [B, H, W]: 1 where the pixel, rounded to 8 bits, is 0xRRGGBB."""
        levels = (inputs["images"].clamp(0.0, 1.0) * 255.0).round().to(torch.int32)
        codes = (levels[..., 0] << 16) + (levels[..., 1] << 8) + levels[..., 2]
        return {"mask": (codes == inputs["color"]).float()}


class ImageToYuv(HostFn):
    """Take images apart into brightness and two differences of colour."""

    name = "image.to_yuv"
    takes = "images"
    gives = "y u v"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return three gray images [B, H, W, 3] each (ITU-R BT.601, full range, differences around 0.5)."""
        red, green, blue = inputs["images"][..., :3].unbind(-1)
        y = _LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue
        parts = {"y": y, "u": (blue - y) * _BLUE_SCALE + _MIDDLE, "v": (red - y) * _RED_SCALE + _MIDDLE}
        return {name: part[..., None].expand(-1, -1, -1, 3) for name, part in parts.items()}


class ImageFromYuv(HostFn):
    """Put images together from brightness and two differences of colour."""

    name = "image.from_yuv"
    takes = "y u v"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return images [B, H, W, 3]; each part counts by the mean of its channels.

        Raises PromptError if the parts have different sizes, or numbers of images other than one.
        """
        y, u, v = _broadcast([inputs[name].mean(dim=-1) for name in "yuv"])
        u, v = u - _MIDDLE, v - _MIDDLE
        return {"images": torch.stack([y + 1.403 * v, y - 0.714 * v - 0.344 * u, y + 1.773 * u], dim=-1)}


def _broadcast(parts: Sequence[Tensor]) -> Sequence[Tensor]:
    """Repeat single images; raises PromptError if the parts do not fit each other."""
    try:
        shape = torch.broadcast_shapes(*(part.shape for part in parts))  # type: ignore[no-untyped-call]
    except RuntimeError as exc:
        sizes = ", ".join(f"{part.shape[0]} of {part.shape[2]}x{part.shape[1]}" for part in parts)
        raise PromptError(
            f"Y, U and V are {sizes}: images of one size, and as many or one, are needed"
        ) from exc
    return [part.expand(shape) for part in parts]
