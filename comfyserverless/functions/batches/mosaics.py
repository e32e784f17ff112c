"""Put a list of tiles together to one image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.host import HostFn
from comfyserverless.functions.limits.room import check_room


class ImageMergeTiles(HostFn):
    """Lay tiles on a canvas, fading them into each other where they overlap."""

    name = "image.merge_tiles"
    takes = "parts boxes width height overlap"
    gives = "images"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return [B, height, width, C]; boxes: [left, top] of each part. Pixels that no tile reaches are black.

        Raises PromptError if the tiles differ in shape, and what `check_room` raises.
        """
        parts: Sequence[Tensor] = inputs["parts"]
        count, high, wide, channels = parts[0].shape
        if any(part.shape != parts[0].shape for part in parts):
            raise PromptError("the tiles of one image must have one size")
        width, height = inputs["width"], inputs["height"]
        check_room((count, height, width, channels + 1), "images")
        total, weights = torch.zeros(count, height, width, channels), torch.zeros(height, width, 1)
        for part, (left, top) in zip(parts, inputs["boxes"], strict=True):
            right, bottom = min(left + wide, width), min(top + high, height)
            down = _ramp(high, inputs["overlap"], top > 0, top + high < height)
            across = _ramp(wide, inputs["overlap"], left > 0, left + wide < width)
            weight = (down[:, None] * across)[: bottom - top, : right - left, None]
            total[:, top:bottom, left:right] += part[:, : bottom - top, : right - left] * weight
            weights[top:bottom, left:right] += weight
        return {"images": total / weights.clamp(min=torch.finfo(torch.float32).tiny)}


def _ramp(length: int, overlap: int, fades_in: bool, fades_out: bool) -> Tensor:
    """Return weights along one side: 1, and rising or falling over the overlap at sides with a neighbour."""
    rising = ((torch.arange(length) + 1.0) / (min(overlap, length) + 1.0)).clamp(max=1.0)
    ramp = torch.ones(length)
    return ramp * (rising if fades_in else 1.0) * (rising.flip(0) if fades_out else 1.0)
