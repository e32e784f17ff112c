"""Make pictures larger with upscale models, tile by tile."""

from __future__ import annotations

from comfyserverless.core.values import UpscaleRef
from comfyserverless.graph.declaration import FileChoices, InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.loaders import file_token
from comfyserverless.nodes.specs import socket
from comfyserverless.nodes.taking import Inputs, shape_of, take_tensor, take_upscaler
from comfyserverless.nodes.tiles.walking import emit_tiles

_MODULE = "comfy_extras.nodes_upscale_model"


async def _load(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return NodeResult((UpscaleRef(ctx.find_file("upscale_models", inputs["model_name"])),))


async def _upscale(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    upscaler, images = take_upscaler(inputs), take_tensor(inputs, "image")
    shape = list(await shape_of(ctx, images))
    plan = await ctx.result(ctx.emit("image.plan_upscale", upscaler=upscaler, shape=shape).out("plan"))
    larger = await emit_tiles(ctx, plan, "image.upscale_tiles", "picture", upscaler=upscaler, images=images)
    return NodeResult((larger,))


NODES = (
    NodeDeclaration(
        name="UpscaleModelLoader",
        display_name="Load Upscale Model",
        category="loaders",
        python_module=_MODULE,
        lower=_load,
        is_changed=file_token("model_name", "upscale_models"),
        inputs=(InputSpec("model_name", FileChoices("upscale_models"), {"multiselect": False}),),
        outputs=(OutputSpec("UPSCALE_MODEL"),),
    ),
    NodeDeclaration(
        name="ImageUpscaleWithModel",
        display_name="Upscale Image (using Model)",
        category="image/upscaling",
        python_module=_MODULE,
        lower=_upscale,
        inputs=(socket("upscale_model", "UPSCALE_MODEL"), socket("image", "IMAGE")),
        outputs=(OutputSpec("IMAGE"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
