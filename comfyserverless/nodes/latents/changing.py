"""Blend, combine, turn, cut and scale latents."""

from __future__ import annotations

from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import InputSpec, Lowering, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.specs import (
    MAX_RESOLUTION_PX,
    QUARTER_TURNS,
    choice,
    combo,
    number,
    socket,
    switch,
    whole,
)
from comfyserverless.nodes.taking import Inputs, shape_of, take_latent, take_tensor

#: Pixels per latent cell that ComfyUI's sizes are meant in, whatever the family.
_CELL_PX = 8
_MODULE = "comfy_extras.nodes_latent"
_LATENT = (OutputSpec("LATENT"),)
_PAIR = (socket("samples1", "LATENT"), socket("samples2", "LATENT"))


def _mixed(function: str, setting: str = "", port: str = "", **fixed: Value) -> Lowering:
    """Return a lowering that gives two latents and a setting to a function; the rest is the first latent's."""

    async def lower(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
        first, second = take_latent(inputs, "samples1"), take_latent(inputs, "samples2")
        given = {port: inputs[setting]} if setting else {}
        mixed = ctx.emit(function, first=first["samples"], second=second["samples"], **given, **fixed)
        return NodeResult(({**first, "samples": mixed.out("samples")},))

    return lower


def _emit_change(ctx: LoweringContext, inputs: Inputs, function: str, **given: Value) -> NodeResult:
    """Give the input `samples` to a function; the rest of the latent stays."""
    latent = take_latent(inputs, "samples")
    changed = ctx.emit(function, samples=latent["samples"], **given)
    return NodeResult(({**latent, "samples": changed.out("samples")},))


async def _multiply(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return _emit_change(ctx, inputs, "latent.multiply", multiplier=inputs["multiplier"])


async def _flip(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return _emit_change(ctx, inputs, "latent.flip", axis=inputs["flip_method"][0])


async def _rotate(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return _emit_change(ctx, inputs, "latent.rotate", turns=QUARTER_TURNS.index(inputs["rotation"]))


async def _crop(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Cut a part out; it begins at most 64 pixels from the end, as in ComfyUI."""
    *_, cells_high, cells_wide = await shape_of(ctx, take_latent(inputs, "samples")["samples"])
    x = min(inputs["x"] // _CELL_PX, max(0, cells_wide - _CELL_PX))
    y = min(inputs["y"] // _CELL_PX, max(0, cells_high - _CELL_PX))
    width, height = inputs["width"] // _CELL_PX, inputs["height"] // _CELL_PX
    return _emit_change(ctx, inputs, "latent.crop", x=x, y=y, width=width, height=height)


async def _cut(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return _emit_change(
        ctx, inputs, "latent.cut", axis=inputs["dim"], index=inputs["index"], amount=inputs["amount"]
    )


async def _cut_to_batch(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return _emit_change(ctx, inputs, "latent.cut_to_batch", axis=inputs["dim"], size=inputs["slice_size"])


async def _scale_by(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    *_, height, width = await shape_of(ctx, take_latent(inputs, "samples")["samples"])
    return _emit_change(
        ctx,
        inputs,
        "latent.upscale",
        width=round(width * inputs["scale_by"]),
        height=round(height * inputs["scale_by"]),
        method=inputs["upscale_method"],
        crop="disabled",
    )


async def _paste(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    destination, source = take_latent(inputs, "destination"), take_latent(inputs, "source")
    pasted = ctx.emit(
        "latent.paste",
        destination=destination["samples"],
        source=source["samples"],
        mask=take_tensor(inputs, "mask", "MASK") if inputs.get("mask") is not None else None,
        x=inputs["x"] // _CELL_PX,
        y=inputs["y"] // _CELL_PX,
        resize_source=inputs["resize_source"],
    )
    return NodeResult(({**destination, "samples": pasted.out("samples")},))


async def _batch(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    first, second = take_latent(inputs, "samples1"), take_latent(inputs, "samples2")
    places: list[int] = []
    for latent in (first, second):
        count, *_ = await shape_of(ctx, latent["samples"])
        own = latent.get("batch_index")
        places += range(count) if own is None else own
    joined = ctx.emit("latent.batch", first=first["samples"], second=second["samples"])
    return NodeResult(({**first, "samples": joined.out("samples"), "batch_index": places},))


async def _seed_behavior(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Give every item noise of its own, or all of them the noise of the first."""
    latent = dict(take_latent(inputs, "samples"))
    places = latent.pop("batch_index", None)
    if inputs["seed_behavior"] == "fixed":
        count, *_ = await shape_of(ctx, latent["samples"])
        latent["batch_index"] = [places[0] if places else 0] * count
    return NodeResult((latent,))


def _cells(name: str) -> InputSpec:
    return whole(name, 0, 0, MAX_RESOLUTION_PX, step=_CELL_PX)


NODES = (
    NodeDeclaration(
        name="LatentUpscaleBy",
        display_name="Upscale Latent By",
        category="latent",
        lower=_scale_by,
        inputs=(
            socket("samples", "LATENT"),
            combo("upscale_method", ("nearest-exact", "bilinear", "area", "bicubic", "bislerp")),
            number("scale_by", 1.5, 0.01, 8.0, step=0.01),
        ),
        outputs=_LATENT,
    ),
    NodeDeclaration(
        name="LatentBlend",
        display_name="Latent Blend",
        category="_for_testing",
        lower=_mixed("latent.blend", "blend_factor", "factor"),
        inputs=(*_PAIR, number("blend_factor", 0.5, 0, 1, step=0.01)),
        outputs=_LATENT,
    ),
    NodeDeclaration(
        name="LatentRotate",
        display_name="Rotate Latent",
        category="latent/transform",
        lower=_rotate,
        inputs=(socket("samples", "LATENT"), combo("rotation", QUARTER_TURNS)),
        outputs=_LATENT,
    ),
    NodeDeclaration(
        name="LatentFlip",
        display_name="Flip Latent",
        category="latent/transform",
        lower=_flip,
        inputs=(
            socket("samples", "LATENT"),
            combo("flip_method", ("x-axis: vertically", "y-axis: horizontally")),
        ),
        outputs=_LATENT,
    ),
    NodeDeclaration(
        name="LatentCrop",
        display_name="Crop Latent",
        category="latent/transform",
        lower=_crop,
        inputs=(
            socket("samples", "LATENT"),
            whole("width", 512, 64, MAX_RESOLUTION_PX, step=_CELL_PX),
            whole("height", 512, 64, MAX_RESOLUTION_PX, step=_CELL_PX),
            _cells("x"),
            _cells("y"),
        ),
        outputs=_LATENT,
    ),
    NodeDeclaration(
        name="LatentCompositeMasked",
        category="latent",
        python_module="comfy_extras.nodes_mask",
        lower=_paste,
        inputs=(
            socket("destination", "LATENT"),
            socket("source", "LATENT"),
            _cells("x"),
            _cells("y"),
            switch("resize_source", False),
            InputSpec("mask", "MASK", section="optional"),
        ),
        outputs=_LATENT,
    ),
    NodeDeclaration(
        name="LatentAdd",
        category="latent/advanced",
        python_module=_MODULE,
        lower=_mixed("latent.sum", sign=1),
        inputs=_PAIR,
        outputs=_LATENT,
    ),
    NodeDeclaration(
        name="LatentSubtract",
        category="latent/advanced",
        python_module=_MODULE,
        lower=_mixed("latent.sum", sign=-1),
        inputs=_PAIR,
        outputs=_LATENT,
    ),
    NodeDeclaration(
        name="LatentMultiply",
        category="latent/advanced",
        python_module=_MODULE,
        lower=_multiply,
        inputs=(socket("samples", "LATENT"), number("multiplier", 1.0, -10.0, 10.0, step=0.01)),
        outputs=_LATENT,
    ),
    NodeDeclaration(
        name="LatentInterpolate",
        category="latent/advanced",
        python_module=_MODULE,
        lower=_mixed("latent.interpolate", "ratio", "ratio"),
        inputs=(*_PAIR, number("ratio", 1.0, 0.0, 1.0, step=0.01)),
        outputs=_LATENT,
    ),
    NodeDeclaration(
        name="LatentConcat",
        category="latent/advanced",
        python_module=_MODULE,
        lower=_mixed("latent.concat", "dim", "axis"),
        inputs=(*_PAIR, choice("dim", ("x", "-x", "y", "-y", "t", "-t"))),
        outputs=_LATENT,
    ),
    NodeDeclaration(
        name="LatentCut",
        category="latent/advanced",
        python_module=_MODULE,
        lower=_cut,
        inputs=(
            socket("samples", "LATENT"),
            choice("dim", ("x", "y", "t")),
            whole("index", 0, -MAX_RESOLUTION_PX, MAX_RESOLUTION_PX, step=1),
            whole("amount", 1, 1, MAX_RESOLUTION_PX, step=1),
        ),
        outputs=_LATENT,
    ),
    NodeDeclaration(
        name="LatentCutToBatch",
        category="latent/advanced",
        python_module=_MODULE,
        lower=_cut_to_batch,
        inputs=(
            socket("samples", "LATENT"),
            choice("dim", ("t", "x", "y")),
            whole("slice_size", 1, 1, MAX_RESOLUTION_PX, step=1),
        ),
        outputs=_LATENT,
    ),
    NodeDeclaration(
        name="LatentBatch",
        category="latent/batch",
        python_module=_MODULE,
        deprecated=True,
        lower=_batch,
        inputs=_PAIR,
        outputs=_LATENT,
    ),
    NodeDeclaration(
        name="LatentBatchSeedBehavior",
        category="latent/advanced",
        python_module=_MODULE,
        lower=_seed_behavior,
        inputs=(socket("samples", "LATENT"), choice("seed_behavior", ("random", "fixed"), default="fixed")),
        outputs=_LATENT,
    ),
)
"""The declarations of this module, in the order of the node menu."""
