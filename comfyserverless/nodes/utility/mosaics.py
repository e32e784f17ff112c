"""Take an image apart into a list of tiles, and put such a list together again."""

from __future__ import annotations

from comfyserverless.core.errors import PromptError
from comfyserverless.graph.declaration import NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import Items, LoweringContext, NodeResult
from comfyserverless.nodes.specs import socket, whole
from comfyserverless.nodes.taking import Inputs, shape_of, take_tensor

_MODULE = "comfy_extras.nodes_images"
_MAX_SIDE_PX = 1_048_576
_MAX_TILES = 4096


async def _split(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    image = take_tensor(inputs, "image")
    _, height, width, *_ = await shape_of(ctx, image)
    wide, high = min(inputs["tile_width"], width), min(inputs["tile_height"], height)
    tiles = [
        ctx.emit("image.crop", images=image, x=left, y=top, width=wide, height=high).out("images")
        for left, top in _places((width, height), (wide, high), inputs["overlap"])
    ]
    return NodeResult((Items(tuple(tiles)),))


async def _merge(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Put the tiles where Split Image has taken them from; every input is a list."""
    tiles = [take_tensor({"image_list": tile}, "image_list") for tile in inputs["image_list"]]
    if not tiles:
        raise PromptError("Input 'image_list' holds no tiles")
    width, height, overlap = (inputs[name][0] for name in ("final_width", "final_height", "overlap"))
    _, high, wide, *_ = await shape_of(ctx, tiles[0])
    places = _places((width, height), (min(wide, width), min(high, height)), overlap)
    if len(places) != len(tiles):
        raise PromptError(
            f"An image of {width}x{height} has {len(places)} tiles of {wide}x{high} with this overlap, but"
            f" {len(tiles)} were given"
        )
    merged = ctx.emit(
        "image.merge_tiles", parts=tiles, boxes=places, width=width, height=height, overlap=overlap
    )
    return NodeResult((merged.out("images"),))


def _places(size: tuple[int, int], tile: tuple[int, int], overlap: int) -> list[list[int]]:
    """Return [left, top] of each tile, row by row. Raises PromptError if they are too many."""
    (width, height), (wide, high) = size, tile
    across, down = _starts(width, wide, overlap), _starts(height, high, overlap)
    if len(across) * len(down) > _MAX_TILES:
        raise PromptError(f"The image would have {len(across) * len(down)} tiles; {_MAX_TILES} are possible")
    return [[left, top] for top in down for left in across]


def _starts(length: int, tile: int, overlap: int) -> list[int]:
    """Return where tiles begin along a side; the last one ends where the side does."""
    step = max(1, tile - overlap)
    last = length - tile
    return [*range(0, last, step), last]


_OVERLAP = whole("overlap", 128, 0, 4096)

NODES = (
    NodeDeclaration(
        name="SplitImageToTileList",
        display_name="Split Image into List of Tiles",
        category="image/batch",
        description="Cut an image into a list of tiles that overlap.",
        python_module=_MODULE,
        lower=_split,
        inputs=(
            socket("image", "IMAGE"),
            whole("tile_width", 1024, 64, _MAX_SIDE_PX),
            whole("tile_height", 1024, 64, _MAX_SIDE_PX),
            _OVERLAP,
        ),
        outputs=(OutputSpec("IMAGE", is_list=True),),
    ),
    NodeDeclaration(
        name="ImageMergeTileList",
        display_name="Merge List of Tiles to Image",
        category="image/batch",
        description="Put a list of tiles together again; where they overlap, they fade into each other.",
        python_module=_MODULE,
        input_is_list=True,
        lower=_merge,
        inputs=(
            socket("image_list", "IMAGE"),
            whole("final_width", 1024, 64, 32768),
            whole("final_height", 1024, 64, 32768),
            _OVERLAP,
        ),
        outputs=(OutputSpec("IMAGE"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
