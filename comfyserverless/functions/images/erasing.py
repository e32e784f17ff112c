"""Erase what a mask covers, for models that paint it anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.host import HostFn
from comfyserverless.functions.mask import batch_of_masks

GRAY = 0.5
CELL_PX = 8
"""Side of a latent cell of all models that take erased pictures."""


class ImageErase(HostFn):
    """Make the masked part of pictures gray."""

    name: ClassVar[str] = "image.erase"
    takes = "images mask"
    gives = "images mask"

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return images [B, H, W, 3] and a mask [N, 1, H, W] of one size, cut to whole latent cells.

        Raises PromptError if there are several masks, but not one per image.
        """
        erased, masks = erase(inputs["images"], inputs["mask"], CELL_PX)
        return {"images": erased, "mask": masks}


def erase(pixels: Tensor, mask: Tensor, cell_px: int) -> tuple[Tensor, Tensor]:
    """Return pixels [B, H, W, 3] that are gray where a mask is above a half, and the mask [N, 1, H, W].

    The mask is fitted to the pixels, and both are cut around the centre to whole cells. Raises PromptError if
    there are several masks, but not one per image.
    """
    pixels = pixels[..., :3]
    size = (int(pixels.shape[1]), int(pixels.shape[2]))
    masks = batch_of_masks(mask)[:, None]
    if masks.shape[0] not in (1, pixels.shape[0]):
        raise PromptError(f"{masks.shape[0]} masks do not fit {pixels.shape[0]} images")
    masks = functional.interpolate(masks, size=size, mode="bilinear")
    pixels, masks = (_cut_to_cells(each, cell_px) for each in (pixels.movedim(-1, 1), masks))
    kept = 1.0 - masks.round()
    return ((pixels - GRAY) * kept + GRAY).movedim(1, -1), masks


def _cut_to_cells(x: Tensor, cell_px: int) -> Tensor:
    """Cut [B, C, H, W] around its centre to whole cells; what is smaller than a cell is left as it is."""
    for axis in (2, 3):
        length = x.shape[axis]
        x = x.narrow(axis, length % cell_px // 2, length // cell_px * cell_px) if length >= cell_px else x
    return x
