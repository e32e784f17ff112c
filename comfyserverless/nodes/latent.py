"""Make, scale, combine, save and load latents; a LATENT is a dict with `samples`, never changed in place."""

from __future__ import annotations

from collections.abc import Mapping

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import InputChoices, InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import Emitted, LoweringContext, NodeResult
from comfyserverless.nodes.saving import save_files
from comfyserverless.nodes.scaling import resolve_size
from comfyserverless.nodes.specs import MAX_RESOLUTION_PX, combo, socket, text, whole
from comfyserverless.nodes.taking import Inputs, shape_of, take_latent
from comfyserverless.nodes.uploads import upload_check, upload_token

#: Pixels per latent cell that ComfyUI's sizes are meant in, whatever the family.
_CELL_PX = 8
_LEAST_SCALED_PX = 64
#: Repeating a batch over and over multiplies the list of its items' places.
_MAX_BATCH = 65_536


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


async def _composite_latents(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    latent = take_latent(inputs, "samples_to")
    composed = ctx.emit(
        "latent.composite",
        samples_to=latent["samples"],
        samples_from=take_latent(inputs, "samples_from")["samples"],
        **{name: inputs[name] // _CELL_PX for name in ("x", "y", "feather")},
    )
    return NodeResult(({**latent, "samples": composed.out("samples")},))


async def _repeat_latents(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    latent, amount = take_latent(inputs, "samples"), inputs["amount"]
    repeated = ctx.emit(
        "latent.repeat",
        samples=latent["samples"],
        noise_mask=latent.get("noise_mask"),
        amount=amount,
    )
    batch = _batch_of(latent, repeated)
    if (places := latent.get("batch_index")) is not None:
        batch["batch_index"] = _repeat_places(places, amount)
    return NodeResult((batch,))


def _repeat_places(places: list[int], amount: int) -> list[int]:
    """Number the repetitions of a batch's items so that each gets noise of its own."""
    if len(places) * amount > _MAX_BATCH:
        raise PromptError(
            f"The batch would have {len(places) * amount} items, at most {_MAX_BATCH} are possible"
        )
    offset = max(places) - min(places) + 1
    return [place + turn * offset for turn in range(amount) for place in places]


async def _take_latents(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    latent = take_latent(inputs, "samples")
    count, *_ = await shape_of(ctx, latent["samples"])
    start = min(count - 1, inputs["batch_index"])
    length = min(count - start, inputs["length"])
    taken = ctx.emit(
        "latent.slice",
        samples=latent["samples"],
        noise_mask=latent.get("noise_mask"),
        start=start,
        length=length,
    )
    places = latent.get("batch_index")
    if places is None:
        places = list(range(count))
    return NodeResult(({**_batch_of(latent, taken), "batch_index": places[start : start + length]},))


def _batch_of(latent: Mapping[str, Value], made: Emitted) -> dict[str, Value]:
    """Return a latent with the samples, and the noise masks if it has any, that a function made of it."""
    batch = {**latent, "samples": made.out("samples")}
    if latent.get("noise_mask") is not None:
        batch["noise_mask"] = made.out("noise_mask")
    return batch


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
    NodeDeclaration(
        name="LatentComposite",
        display_name="Latent Composite",
        category="latent",
        lower=_composite_latents,
        inputs=(
            socket("samples_to", "LATENT"),
            socket("samples_from", "LATENT"),
            whole("x", 0, 0, MAX_RESOLUTION_PX, step=8),
            whole("y", 0, 0, MAX_RESOLUTION_PX, step=8),
            whole("feather", 0, 0, MAX_RESOLUTION_PX, step=8),
        ),
        outputs=(OutputSpec("LATENT"),),
    ),
    NodeDeclaration(
        name="RepeatLatentBatch",
        display_name="Repeat Latent Batch",
        category="latent/batch",
        lower=_repeat_latents,
        inputs=(socket("samples", "LATENT"), whole("amount", 1, 1, 64)),
        outputs=(OutputSpec("LATENT"),),
    ),
    NodeDeclaration(
        name="LatentFromBatch",
        display_name="Latent From Batch",
        category="latent/batch",
        lower=_take_latents,
        inputs=(socket("samples", "LATENT"), whole("batch_index", 0, 0, 63), whole("length", 1, 1, 64)),
        outputs=(OutputSpec("LATENT"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
