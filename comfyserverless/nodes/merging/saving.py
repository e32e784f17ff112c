"""Save models to the output folder, with what changes them, and the workflow that made them."""

from __future__ import annotations

from comfyserverless.graph.declaration import NodeDeclaration
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.saving import save_files
from comfyserverless.nodes.specs import socket, text
from comfyserverless.nodes.taking import Inputs, take_model, take_vae

_CATEGORY = "advanced/model_merging"
_MODULE = "comfy_extras.nodes_model_merging"
_HIDDEN = {"prompt": "PROMPT", "extra_pnginfo": "EXTRA_PNGINFO"}
_EXTENSION = "safetensors"


async def _save_model(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    place = ctx.destination("output", inputs["filename_prefix"])
    await save_files(ctx, "model.save", place, _EXTENSION, model=take_model(inputs))
    return NodeResult(ui={})


async def _save_vae(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    place = ctx.destination("output", inputs["filename_prefix"])
    await save_files(ctx, "vae.save", place, _EXTENSION, vae=take_vae(inputs))
    return NodeResult(ui={})


NODES = (
    NodeDeclaration(
        name="ModelSave",
        display_name="ModelSave",
        category=_CATEGORY,
        python_module=_MODULE,
        lower=_save_model,
        output_node=True,
        inputs=(socket("model", "MODEL"), text("filename_prefix", default="diffusion_models/ComfyUI")),
        hidden=_HIDDEN,
    ),
    NodeDeclaration(
        name="VAESave",
        display_name="VAESave",
        category=_CATEGORY,
        python_module=_MODULE,
        lower=_save_vae,
        output_node=True,
        inputs=(socket("vae", "VAE"), text("filename_prefix", default="vae/ComfyUI_vae")),
        hidden=_HIDDEN,
    ),
)
"""The declarations of this module, in the order of the node menu."""
