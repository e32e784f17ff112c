"""Condition inpainting models: what is kept of a picture goes beside the latent into the network.

A conditioning then holds `concat_latent_image`, the latent of the picture with its masked part gray, and
`concat_mask`; models of other kinds ignore both.
"""

from __future__ import annotations

from typing import Any

from comfyserverless.graph.declaration import NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.specs import socket, switch
from comfyserverless.nodes.taking import Inputs, take_conditioning, take_tensor, take_vae


async def _condition(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    vae, pixels = take_vae(inputs), take_tensor(inputs, "pixels")
    erased = ctx.emit("image.erase", images=pixels, mask=take_tensor(inputs, "mask", "MASK"))
    mask = erased.out("mask")
    kept = ctx.emit("vae.encode", vae=vae, pixels=erased.out("images")).out("samples")
    latent = {"samples": ctx.emit("vae.encode", vae=vae, pixels=pixels).out("samples")}
    if inputs["noise_mask"]:
        latent["noise_mask"] = mask
    added = {"concat_latent_image": kept, "concat_mask": mask}
    sides: list[Any] = [
        [[cond, {**options, **added}] for cond, options in take_conditioning(inputs, side)]
        for side in ("positive", "negative")
    ]
    return NodeResult((*sides, latent))


NODES = (
    NodeDeclaration(
        name="InpaintModelConditioning",
        display_name="InpaintModelConditioning",
        category="conditioning/inpaint",
        lower=_condition,
        inputs=(
            socket("positive", "CONDITIONING"),
            socket("negative", "CONDITIONING"),
            socket("vae", "VAE"),
            socket("pixels", "IMAGE"),
            socket("mask", "MASK"),
            switch("noise_mask", True),
        ),
        outputs=(
            OutputSpec("CONDITIONING", "positive"),
            OutputSpec("CONDITIONING", "negative"),
            OutputSpec("LATENT", "latent"),
        ),
    ),
)
"""The declarations of this module, in the order of the node menu."""
