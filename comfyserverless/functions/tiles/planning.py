"""Plan how a picture goes through a network in tiles: what each invocation computes, and how it is blended.

A plan is {scale: [numerator, denominator] of sizes, passes: list of passes}, a pass {size: [h, w] of what is
cut, overlap: in its cells, parts: list of {item: of the batch, boxes: list of [top, left, height, width]}}. A
part is the work of one invocation: one tile of the usual size, or so many small ones as are about as large.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

from comfyserverless.core.errors import PromptError
from comfyserverless.models.tiles.blending import Size, Tiling, three_tilings
from comfyserverless.models.upscaling.upscaler import OVERLAP_PX, TILE_PX
from comfyserverless.sdk.modelfn import IoSetup, ModelFn

PART_PX = 512 * 512
"""How many pixels of tiles an invocation computes, as long as a tile is not larger."""

_LEAST_TILE_PX = 64
_TILE_STEP_PX = 16
_OVERLAP_STEP_PX = 8
_QUARTER = 4


class VaePlanTiles(ModelFn):
    """Plan the tiles of an autoencoder: three passes, with tiles that are high, wide and square."""

    name: ClassVar[str] = "vae.plan_tiles"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in ("vae", "shape", "tile_size", "overlap", "is_decoding"):
            io.add_input(port)
        io.add_output("plan")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the autoencoder of `vae`; its weights stay where they are."""
        return {"vae": pool.vae(inputs["vae"])}

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the plan for samples or pixels of `shape`. Raises PromptError for a shape that is neither."""
        cell_px: int = components["vae"].downscale_px
        shape, is_decoding = inputs["shape"], inputs["is_decoding"]
        if len(shape) != 4 or 0 in shape:
            raise PromptError(f"a VAE works on batches of four sides above 0, got shape {list(shape)}")
        tile_px, overlap_px = _usable(inputs["tile_size"], inputs["overlap"], is_decoding)
        if is_decoding:
            size, scale, unit = (shape[2], shape[3]), Fraction(cell_px), cell_px
        else:
            size = (shape[1] // cell_px * cell_px, shape[2] // cell_px * cell_px)
            scale, unit = Fraction(1, cell_px), 1
        tilings = three_tilings(tile_px // unit, overlap_px // unit, is_square_first=not is_decoding)
        return {"plan": plan_of(size, shape[0], tilings, scale, PART_PX // unit**2)}


class ImagePlanUpscale(ModelFn):
    """Plan the tiles of an upscaler."""

    name: ClassVar[str] = "image.plan_upscale"

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        io.add_input("upscaler")
        io.add_input("shape")
        io.add_output("plan")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        """Take the upscaler; its weights stay where they are."""
        return {"upscaler": pool.upscaler(inputs["upscaler"])}

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return the plan for images of `shape`. Raises PromptError for a shape that is none of images."""
        shape = inputs["shape"]
        if len(shape) != 4 or 0 in shape:
            raise PromptError(f"images are batches of four sides above 0, got shape {list(shape)}")
        tilings = (Tiling(TILE_PX, TILE_PX, OVERLAP_PX),)
        scale = Fraction(components["upscaler"].scale)
        return {"plan": plan_of((shape[1], shape[2]), shape[0], tilings, scale, PART_PX)}


def plan_of(
    size: Size, items: int, tilings: Sequence[Tiling], scale: Fraction, part_cells: int
) -> dict[str, Any]:
    """Return the plan for a batch of `items`; part_cells: how many cells of tiles a part has."""

    def parts(tiling: Tiling) -> Iterator[dict[str, Any]]:
        boxes = [list(box) for box in tiling.boxes(size)]
        count = max(1, part_cells // (tiling.height * tiling.width))
        for item in range(items):
            for at in range(0, len(boxes), count):
                yield {"item": item, "boxes": boxes[at : at + count]}

    return {
        "scale": [scale.numerator, scale.denominator],
        "passes": [
            {"size": list(size), "overlap": tiling.overlap, "parts": list(parts(tiling))} for tiling in tilings
        ],
    }


def _usable(tile_px: int, overlap_px: int, is_decoding: bool) -> tuple[int, int]:
    """Return a tile that halves into whole cells, and an overlap that its halves have room for."""
    tile_px = max(_LEAST_TILE_PX, tile_px // _TILE_STEP_PX * _TILE_STEP_PX)
    if overlap_px >= tile_px // 2 or (is_decoding and tile_px < overlap_px * _QUARTER):
        overlap_px = tile_px // _QUARTER
    return tile_px, overlap_px // _OVERLAP_STEP_PX * _OVERLAP_STEP_PX
