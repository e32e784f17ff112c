"""Decode and encode with an autoencoder in tiles, for pictures of any size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfyserverless.core.values import Output, TensorRef
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.specs import socket, whole
from comfyserverless.nodes.taking import Inputs, shape_of, take_latent, take_tensor, take_vae
from comfyserverless.nodes.tiles.walking import emit_tiles

_MAX_PX = 4096


async def _decode(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    samples = take_latent(inputs, "samples")["samples"]
    plan = await _plan(ctx, inputs, samples, is_decoding=True)
    images = await emit_tiles(ctx, plan, "vae.decode_tiles", "decoded", vae=take_vae(inputs), samples=samples)
    return NodeResult((images,))


async def _encode(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    pixels = take_tensor(inputs, "pixels")
    plan = await _plan(ctx, inputs, pixels, is_decoding=False)
    samples = await emit_tiles(ctx, plan, "vae.encode_tiles", "latent", vae=take_vae(inputs), pixels=pixels)
    return NodeResult(({"samples": samples},))


async def _plan(
    ctx: LoweringContext, inputs: Inputs, source: TensorRef | Output, *, is_decoding: bool
) -> Mapping[str, Any]:
    """Plan the tiles of samples or pixels. The sizes in time mean nothing for pictures."""
    planned = ctx.emit(
        "vae.plan_tiles",
        vae=take_vae(inputs),
        shape=list(await shape_of(ctx, source)),
        tile_size=inputs["tile_size"],
        overlap=inputs["overlap"],
        is_decoding=is_decoding,
    )
    plan: Mapping[str, Any] = await ctx.result(planned.out("plan"))
    return plan


def _sizes(step_px: int) -> tuple[InputSpec, ...]:
    return (
        whole("tile_size", 512, 64, _MAX_PX, step=step_px),
        whole("overlap", 64, 0, _MAX_PX, step=32),
        whole("temporal_size", 64, 8, _MAX_PX, step=4),
        whole("temporal_overlap", 8, 4, _MAX_PX, step=4),
    )


NODES = (
    NodeDeclaration(
        name="VAEDecodeTiled",
        display_name="VAE Decode (Tiled)",
        category="_for_testing",
        lower=_decode,
        inputs=(socket("samples", "LATENT"), socket("vae", "VAE"), *_sizes(32)),
        outputs=(OutputSpec("IMAGE"),),
    ),
    NodeDeclaration(
        name="VAEEncodeTiled",
        display_name="VAE Encode (Tiled)",
        category="_for_testing",
        lower=_encode,
        inputs=(socket("pixels", "IMAGE"), socket("vae", "VAE"), *_sizes(64)),
        outputs=(OutputSpec("LATENT"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
