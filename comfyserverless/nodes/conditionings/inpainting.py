"""Condition models for inpainting, and for editing: what they see of a picture goes beside the latent.

A conditioning then holds `concat_latent_image`, the latent of the picture, for inpainting with its masked part
gray, and `concat_mask`; models of other kinds ignore both.
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
    return NodeResult((*_both_sides(inputs, {"concat_latent_image": kept, "concat_mask": mask}), latent))


async def _condition_editing(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    picture = ctx.emit("vae.encode", vae=take_vae(inputs), pixels=take_tensor(inputs, "pixels")).out("samples")
    empty = ctx.emit("latent.multiply", samples=picture, multiplier=0.0).out("samples")
    return NodeResult((*_both_sides(inputs, {"concat_latent_image": picture}), {"samples": empty}))


def _both_sides(inputs: Inputs, added: dict[str, Any]) -> list[Any]:
    return [
        [[cond, {**options, **added}] for cond, options in take_conditioning(inputs, side)]
        for side in ("positive", "negative")
    ]


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
    NodeDeclaration(
        name="InstructPixToPixConditioning",
        category="conditioning/instructpix2pix",
        python_module="comfy_extras.nodes_ip2p",
        lower=_condition_editing,
        inputs=(
            socket("positive", "CONDITIONING"),
            socket("negative", "CONDITIONING"),
            socket("vae", "VAE"),
            socket("pixels", "IMAGE"),
        ),
        outputs=(
            OutputSpec("CONDITIONING", "positive"),
            OutputSpec("CONDITIONING", "negative"),
            OutputSpec("LATENT", "latent"),
        ),
    ),
)
"""The declarations of this module, in the order of the node menu."""
