"""Join, count and divide batches, and make lists of values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import InputSpec, Lowering, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import Items, LoweringContext, NodeResult
from comfyserverless.nodes.specs import socket, whole
from comfyserverless.nodes.taking import Inputs, shape_of, take_latent, take_tensor
from comfyserverless.nodes.utility.growing import dynamic, growing, grown, matched, matching

_JOINING = "comfy_extras.nodes_post_processing"
_DIVIDING = "comfy_extras.nodes_rebatch"
_MAX_PARTS = 50
_MAX_BATCH = 4096
_MAX_LIST = 100


def _joined(group: str, kind: str, function: str, port: str) -> Lowering:
    async def lower(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
        parts = [take_tensor(inputs, f"{group}.{name}", kind) for name in grown(inputs, group)]
        return NodeResult((ctx.emit(function, parts=parts).out(port),))

    return lower


async def _join_latents(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    latents = [take_latent(inputs, f"latents.{name}") for name in grown(inputs, "latents")]
    places = [place for latent in latents for place in await _places(ctx, latent)]
    joined = ctx.emit("latent.join", parts=[latent["samples"] for latent in latents])
    return NodeResult(({**latents[0], "samples": joined.out("samples"), "batch_index": places},))


async def _places(ctx: LoweringContext, latent: Any, start: int = 0) -> list[int]:
    """Return which noise each item of a latent gets."""
    own = latent.get("batch_index")
    count, *_ = await shape_of(ctx, latent["samples"])
    return list(own) if own is not None else list(range(start, start + count))


async def _size(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    count, height, width, *_ = await shape_of(ctx, take_tensor(inputs, "image"))
    return NodeResult((width, height, count))


async def _rebatch_images(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    images = [take_tensor({"images": one}, "images") for one in inputs["images"]]
    shapes = [await shape_of(ctx, one) for one in images]
    made: list[Value] = []
    for picks in _divided(shapes, inputs["batch_size"][0]):
        whole_part = _whole_part(picks, shapes)
        if whole_part is not None:
            made.append(images[whole_part])
            continue
        used, own = _own_picks(picks)
        made.append(ctx.emit("image.pick", parts=[images[part] for part in used], picks=own).out("images"))
    return NodeResult((Items(tuple(made)),))


async def _rebatch_latents(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    latents = [take_latent({"latents": one}, "latents") for one in inputs["latents"]]
    shapes = [await shape_of(ctx, latent["samples"]) for latent in latents]
    places: list[list[int]] = []
    for latent in latents:
        places.append(await _places(ctx, latent, sum(map(len, places))))
    made: list[Value] = []
    for picks in _divided(shapes, inputs["batch_size"][0]):
        used, own = _own_picks(picks)
        masks = [latents[part].get("noise_mask") for part in used]
        picked = ctx.emit(
            "latent.pick", parts=[latents[part]["samples"] for part in used], masks=masks, picks=own
        )
        index = [place for part, first, end in picks for place in places[part][first:end]]
        latent = {"samples": picked.out("samples"), "batch_index": index}
        if any(mask is not None for mask in masks):
            latent["noise_mask"] = picked.out("noise_mask")
        made.append(latent)
    return NodeResult((Items(tuple(made)),))


Pick = list[int]
"""[number of the part, its first item, the item after the last]."""


def _divided(shapes: Sequence[Sequence[int]], size: int) -> Iterator[list[Pick]]:
    """Divide the items of parts, in order, into batches of at most `size` items of one shape."""
    items = [(part, item) for part, shape in enumerate(shapes) for item in range(shape[0])]
    for _, run in groupby(items, key=lambda item: tuple(shapes[item[0]][1:])):
        alike = list(run)
        for start in range(0, len(alike), size):
            batch = groupby(alike[start : start + size], key=lambda item: item[0])
            yield [_as_pick(part, [item for _, item in own]) for part, own in batch]


def _as_pick(part: int, items: list[int]) -> Pick:
    return [part, items[0], items[-1] + 1]


def _whole_part(picks: list[Pick], shapes: Sequence[Sequence[int]]) -> int | None:
    """Return the part that a batch is the same as, None if it is none."""
    (part, first, end), *others = picks
    return part if not others and (first, end) == (0, shapes[part][0]) else None


def _own_picks(picks: list[Pick]) -> tuple[list[int], list[Pick]]:
    """Return the parts that are used, and the picks with numbers among these."""
    used = [part for part, _, _ in picks]
    return used, [[at, first, end] for at, (_, first, end) in enumerate(picks)]


async def _create_list(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return NodeResult((Items(tuple(value for values in grown(inputs, "inputs").values() for value in values)),))


async def _get_item(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    values, index = inputs["list"], inputs["index"][0]
    if not -len(values) <= index < len(values):
        raise PromptError(f"There is no item {index} in a list of {len(values)}")
    return NodeResult((values[index],))


_IMAGES = (growing("images", socket("image", "IMAGE"), (2, _MAX_PARTS)),)
_MASKS = (growing("masks", socket("mask", "MASK"), (2, _MAX_PARTS)),)
_LATENTS = (growing("latents", socket("latent", "LATENT"), (2, _MAX_PARTS)),)
_LIST = (growing("inputs", matching("input", "type"), (1, _MAX_LIST)),)
_BATCH_SIZE = whole("batch_size", 1, 1, _MAX_BATCH)


def _batch_node(
    name: str, title: str, category: str, lower: Lowering, inputs: tuple[InputSpec, ...], kind: str
) -> NodeDeclaration:
    return NodeDeclaration(
        name=name,
        display_name=title,
        category=category,
        python_module=_JOINING,
        lower=lower,
        inputs=inputs,
        dynamic_inputs=dynamic(inputs),
        outputs=(OutputSpec(kind),),
    )


NODES = (
    _batch_node(
        "BatchImagesNode",
        "Batch Images",
        "image",
        _joined("images", "IMAGE", "image.join", "images"),
        _IMAGES,
        "IMAGE",
    ),
    _batch_node(
        "BatchMasksNode", "Batch Masks", "mask", _joined("masks", "MASK", "mask.join", "mask"), _MASKS, "MASK"
    ),
    _batch_node("BatchLatentsNode", "Batch Latents", "latent", _join_latents, _LATENTS, "LATENT"),
    NodeDeclaration(
        name="GetImageSize",
        display_name="Get Image Size",
        category="image",
        python_module="comfy_extras.nodes_images",
        lower=_size,
        inputs=(socket("image", "IMAGE"),),
        outputs=(OutputSpec("INT", "width"), OutputSpec("INT", "height"), OutputSpec("INT", "batch_size")),
        hidden={"unique_id": ["UNIQUE_ID"]},
    ),
    NodeDeclaration(
        name="RebatchImages",
        display_name="Rebatch Images",
        category="image/batch",
        python_module=_DIVIDING,
        input_is_list=True,
        lower=_rebatch_images,
        inputs=(socket("images", "IMAGE"), _BATCH_SIZE),
        outputs=(OutputSpec("IMAGE", is_list=True),),
    ),
    NodeDeclaration(
        name="RebatchLatents",
        display_name="Rebatch Latents",
        category="latent/batch",
        python_module=_DIVIDING,
        input_is_list=True,
        lower=_rebatch_latents,
        inputs=(socket("latents", "LATENT"), _BATCH_SIZE),
        outputs=(OutputSpec("LATENT", is_list=True),),
    ),
    NodeDeclaration(
        name="CreateList",
        display_name="Create List",
        category="utils",
        description="Put values, and the items of lists, into one list, in the order of the inputs.",
        python_module="comfy_extras.nodes_toolkit",
        input_is_list=True,
        lower=_create_list,
        inputs=_LIST,
        dynamic_inputs=dynamic(_LIST),
        outputs=(matched("list", "type", is_list=True),),
    ),
    NodeDeclaration(
        name="GetItemFromList",
        display_name="Get Item From List",
        category="utils",
        description="One item of a list, counted from 0.",
        python_module="comfy_extras.nodes_toolkit",
        input_is_list=True,
        lower=_get_item,
        inputs=(socket("list", "*"), InputSpec("index", "INT", {"default": 0})),
        outputs=(OutputSpec("*"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
