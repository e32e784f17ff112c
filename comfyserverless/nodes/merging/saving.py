"""Save models to the output folder, with what changes them, and the workflow that made them."""

from __future__ import annotations

from comfyserverless.core.values import ClipRef, ModelRef, VaeRef
from comfyserverless.graph.declaration import InputSpec, Lowering, NodeDeclaration
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.saving import metadata, save_files
from comfyserverless.nodes.specs import socket, text
from comfyserverless.nodes.taking import Inputs, take_clip, take_model, take_vae

_CATEGORY = "advanced/model_merging"
_MODULE = "comfy_extras.nodes_model_merging"
_HIDDEN = {"prompt": "PROMPT", "extra_pnginfo": "EXTRA_PNGINFO"}
_EXTENSION = "safetensors"


async def _save_model(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    await _save_titled(ctx, inputs, "model.save", model=take_model(inputs))
    return NodeResult(ui={})


async def _save_checkpoint(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    model, clip, vae = take_model(inputs), take_clip(inputs), take_vae(inputs)
    await _save_titled(ctx, inputs, "checkpoint.save", model=model, clip=clip, vae=vae)
    return NodeResult(ui={})


async def _save_titled(
    ctx: LoweringContext, inputs: Inputs, function: str, **handles: ModelRef | ClipRef | VaeRef
) -> None:
    """Save one file; it is told the name that it will have, since that is part of what it holds."""
    place = ctx.destination("output", inputs["filename_prefix"])
    title = f"{place.name} {ctx.expected_number(place)}"
    await save_files(ctx, function, place, _EXTENSION, title=title, **handles)


async def _save_clip(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Save each text model as a file of its own, which is named after it."""
    clip = take_clip(inputs)
    texts = metadata(ctx)
    texts = {"format": "pt", **texts} if texts else {}
    for kind in await ctx.result(ctx.emit("clip.kinds", clip=clip).out("kinds")):
        place = ctx.destination("output", f"{inputs['filename_prefix']}_clip_{kind}")
        await save_files(ctx, "clip.save", place, _EXTENSION, clip=clip, kind=kind, metadata=texts)
    return NodeResult(ui={})


async def _save_vae(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    place = ctx.destination("output", inputs["filename_prefix"])
    await save_files(ctx, "vae.save", place, _EXTENSION, vae=take_vae(inputs))
    return NodeResult(ui={})


def _node(
    name: str, lower: Lowering, *inputs: InputSpec, prefix: str, display_name: str | None = None
) -> NodeDeclaration:
    return NodeDeclaration(
        name=name,
        display_name=display_name or name,
        category=_CATEGORY,
        python_module=_MODULE,
        lower=lower,
        output_node=True,
        inputs=(*inputs, text("filename_prefix", default=prefix)),
        hidden=_HIDDEN,
    )


_MODEL, _CLIP, _VAE = socket("model", "MODEL"), socket("clip", "CLIP"), socket("vae", "VAE")

NODES = (
    _node(
        "CheckpointSave",
        _save_checkpoint,
        _MODEL,
        _CLIP,
        _VAE,
        prefix="checkpoints/ComfyUI",
        display_name="Save Checkpoint",
    ),
    _node("CLIPSave", _save_clip, _CLIP, prefix="clip/ComfyUI"),
    _node("VAESave", _save_vae, _VAE, prefix="vae/ComfyUI_vae"),
    _node("ModelSave", _save_model, _MODEL, prefix="diffusion_models/ComfyUI"),
)
"""The declarations of this module, in the order of the node menu."""
