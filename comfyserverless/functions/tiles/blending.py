"""Put tiles together, and passes of them."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import groupby
from typing import Any, ClassVar

import torch
from torch import Tensor

from comfyserverless.functions.host import HostFn
from comfyserverless.models.autoencoder import to_pictures
from comfyserverless.models.tiles.blending import blend


class TilesBlend(HostFn):
    """Blend the tiles of one pass."""

    name: ClassVar[str] = "tiles.blend"
    takes = "tiles parts size overlap scale previous"
    gives = "total"

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return [B, C, H, W], plus `previous`, the total of the passes before, or None.

        tiles: for each part of a plan's pass a list of [C, h, w]; parts, size, overlap: of the pass; scale: of
        the plan (see planning).
        """
        scale, size = Fraction(*inputs["scale"]), (inputs["size"][0], inputs["size"][1])
        given = zip(inputs["parts"], inputs["tiles"], strict=True)
        items: list[Tensor] = []
        for _, group in groupby(given, key=lambda each: each[0]["item"]):
            boxes: list[Any] = []
            tiles: list[Tensor] = []
            for part, made in group:
                boxes += part["boxes"]
                tiles += made
            items.append(blend(tiles, boxes, size, inputs["overlap"], scale))
        total, previous = torch.stack(items), inputs["previous"]
        return {"total": total if previous is None else previous + total}


class TilesMean(HostFn):
    """Turn the total of all passes into what a node gives."""

    name: ClassVar[str] = "tiles.mean"
    takes = "total passes meaning"
    gives = "mean"

    @torch.no_grad()
    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the total divided by the number of passes.

        meaning: `latent`, [B, C, h, w], stays so; `decoded`, of -1..1, and `picture`, of 0..1, become images
        [B, H, W, C] within 0..1.
        """
        passes, meaning = inputs["passes"], inputs["meaning"]
        mean = inputs["total"] if passes == 1 else inputs["total"] / passes
        if meaning == "decoded":
            mean = to_pictures(mean)
        elif meaning == "picture":
            mean = mean.clamp(0.0, 1.0).movedim(1, -1)
        return {"mean": mean}
