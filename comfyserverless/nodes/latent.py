"""Make, scale, save and load latents; a LATENT is a dict with `samples`, never changed in place."""

from __future__ import annotations

from comfyserverless.graph.declaration import InputChoices, InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.saving import save_files
from comfyserverless.nodes.scaling import resolve_size
from comfyserverless.nodes.specs import MAX_RESOLUTION_PX, combo, socket, text, whole
from comfyserverless.nodes.taking import Inputs, shape_of, take_latent
from comfyserverless.nodes.uploads import upload_check, upload_token

#: Pixels per latent cell that ComfyUI's sizes are meant in, whatever the family.
_CELL_PX = 8
_LEAST_SCALED_PX = 64


async def _empty_latent(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    empty = ctx.emit(
        "latent.empty",
        width=inputs["width"],
        height=inputs["height"],
        batch_size=inputs["batch_size"],
    )
    return NodeResult(({"samples": empty.out("samples")},))


async def _scale_latent(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    latent, width, height = take_latent(inputs, "samples"), inputs["width"], inputs["height"]
    if width == 0 and height == 0:
        return NodeResult((latent,))
    if width != 0 and height != 0:
        width, height = max(_LEAST_SCALED_PX, width), max(_LEAST_SCALED_PX, height)
    else:
        *_, cells_high, cells_wide = await shape_of(ctx, latent["samples"])
        width, height = (
            max(_LEAST_SCALED_PX, width) if width else 0,
            max(_LEAST_SCALED_PX, height) if height else 0,
        )
        width, height = resolve_size(width, height, (cells_wide, cells_high), least=_LEAST_SCALED_PX)
    scaled = ctx.emit(
        "latent.upscale",
        samples=latent["samples"],
        width=width // _CELL_PX,
        height=height // _CELL_PX,
        method=inputs["upscale_method"],
        crop=inputs["crop"],
    )
    return NodeResult(({**latent, "samples": scaled.out("samples")},))


async def _save_latent(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    samples = take_latent(inputs, "samples")["samples"]
    place = ctx.destination("output", inputs["filename_prefix"])
    items = await save_files(ctx, "latent.save", place, "latent", samples=samples)
    return NodeResult(ui={"latents": items})


async def _load_latent(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    loaded = ctx.emit("latent.load", file=ctx.find_input_file(inputs["latent"]))
    return NodeResult(({"samples": loaded.out("samples")},))


NODES = (
    NodeDeclaration(
        name="EmptyLatentImage",
        display_name="Empty Latent Image",
        category="latent",
        lower=_empty_latent,
        inputs=(
            whole("width", 512, 16, MAX_RESOLUTION_PX, step=8),
            whole("height", 512, 16, MAX_RESOLUTION_PX, step=8),
            whole("batch_size", 1, 1, 4096),
        ),
        outputs=(OutputSpec("LATENT"),),
    ),
    NodeDeclaration(
        name="LatentUpscale",
        display_name="Upscale Latent",
        category="latent",
        lower=_scale_latent,
        inputs=(
            socket("samples", "LATENT"),
            combo("upscale_method", ("nearest-exact", "bilinear", "area", "bicubic", "bislerp")),
            whole("width", 512, 0, MAX_RESOLUTION_PX, step=8),
            whole("height", 512, 0, MAX_RESOLUTION_PX, step=8),
            combo("crop", ("disabled", "center")),
        ),
        outputs=(OutputSpec("LATENT"),),
    ),
    NodeDeclaration(
        name="SaveLatent",
        display_name="SaveLatent",
        category="_for_testing",
        lower=_save_latent,
        output_node=True,
        inputs=(socket("samples", "LATENT"), text("filename_prefix", default="latents/ComfyUI")),
        hidden={"prompt": "PROMPT", "extra_pnginfo": "EXTRA_PNGINFO"},
    ),
    NodeDeclaration(
        name="LoadLatent",
        display_name="LoadLatent",
        category="_for_testing",
        lower=_load_latent,
        inputs=(InputSpec("latent", InputChoices("latent")),),
        outputs=(OutputSpec("LATENT"),),
        check_inputs=upload_check("latent", "latent"),
        checked_inputs=frozenset({"latent"}),
        is_changed=upload_token("latent"),
    ),
)
"""The declarations of this module, in the order of the node menu."""
