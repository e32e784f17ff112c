"""Decode and encode with an autoencoder."""

from __future__ import annotations

from comfyserverless.graph.declaration import NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.specs import socket
from comfyserverless.nodes.taking import Inputs, take_latent, take_tensor, take_vae


async def _decode(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    samples = take_latent(inputs, "samples")["samples"]
    return NodeResult((ctx.emit("vae.decode", vae=take_vae(inputs), samples=samples).out("images"),))


async def _encode(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    pixels = take_tensor(inputs, "pixels")
    encoded = ctx.emit("vae.encode", vae=take_vae(inputs), pixels=pixels)
    return NodeResult(({"samples": encoded.out("samples")},))


NODES = (
    NodeDeclaration(
        name="VAEDecode",
        display_name="VAE Decode",
        category="latent",
        lower=_decode,
        inputs=(socket("samples", "LATENT"), socket("vae", "VAE")),
        outputs=(OutputSpec("IMAGE"),),
    ),
    NodeDeclaration(
        name="VAEEncode",
        display_name="VAE Encode",
        category="latent",
        lower=_encode,
        inputs=(socket("pixels", "IMAGE"), socket("vae", "VAE")),
        outputs=(OutputSpec("LATENT"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
