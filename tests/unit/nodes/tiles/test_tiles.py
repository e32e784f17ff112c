"""Nodes that work in tiles: what they emit, in which order, and what is kept meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import FileRef, Output, UpscaleRef
from tests.support.graph_fakes import FakeContext, tensor
from tests.support.graph_lowered import VAE, output

SAMPLES = tensor("s", 2, 4, 20, 30)
IMAGE = tensor("i", 1, 48, 64, 3)
UPSCALER = UpscaleRef(FileRef("/models/upscale_models/esrgan.safetensors"))
SIZES = {"tile_size": 64, "overlap": 16, "temporal_size": 64, "temporal_overlap": 8}


def one_pass(name: str, parts: int) -> dict[str, Any]:
    boxes = [{"item": 0, "boxes": [[at, 0, 1, 1]]} for at in range(parts)]
    return {"size": [parts, 1], "overlap": name, "parts": boxes}


async def test_each_part_is_an_invocation_and_passes_follow_each_other() -> None:
    plan = {"scale": [8, 1], "passes": [one_pass("a", 2), one_pass("b", 1)]}
    ctx = FakeContext(results={"vae.plan_tiles": {"plan": plan}, "tiles.blend": {"total": None}})
    value = await output("VAEDecodeTiled", ctx, vae=VAE, samples={"samples": SAMPLES}, **SIZES)
    tiles = ["vae.decode_tiles"]
    assert ctx.functions() == [
        "vae.plan_tiles",
        *tiles * 2,
        "tiles.blend",
        *tiles,
        "tiles.blend",
        "tiles.mean",
    ]
    planned, first, second, blend, _, last, mean = ctx.calls
    assert planned.inputs["shape"] == [2, 4, 20, 30]
    assert (planned.inputs["tile_size"], planned.inputs["overlap"]) == (64, 16)
    assert planned.inputs["is_decoding"] is True
    assert first.inputs == {"vae": VAE, "samples": SAMPLES, "item": 0, "boxes": [[0, 0, 1, 1]]}
    assert blend.inputs["tiles"] == [Output(first.id, "tiles"), Output(second.id, "tiles")]
    assert (blend.inputs["previous"], blend.inputs["scale"]) == (None, [8, 1])
    assert last.inputs["previous"] == Output(blend.id, "total")
    assert ctx.awaited == [Output(planned.id, "plan"), Output(blend.id, "total")], "before the second pass"
    assert ctx.kept == [blend.id, last.id]
    assert mean.inputs == {"total": Output(last.id, "total"), "passes": 2, "meaning": "decoded"}
    assert value == Output(mean.id, "mean")


async def test_encoding_gives_a_latent() -> None:
    plan = {"scale": [1, 8], "passes": [one_pass("a", 1)]}
    ctx = FakeContext(results={"vae.plan_tiles": {"plan": plan}})
    value = await output("VAEEncodeTiled", ctx, vae=VAE, pixels=IMAGE, **SIZES)
    assert ctx.functions() == ["vae.plan_tiles", "vae.encode_tiles", "tiles.blend", "tiles.mean"]
    assert ctx.calls[0].inputs["is_decoding"] is False
    assert ctx.calls[-1].inputs["meaning"] == "latent"
    assert value == {"samples": Output(ctx.calls[-1].id, "mean")}


async def test_an_upscale_model_is_loaded_by_name_without_running_anything() -> None:
    ctx = FakeContext()
    assert await output("UpscaleModelLoader", ctx, model_name="esrgan.safetensors") == UPSCALER
    assert ctx.calls == []
    with pytest.raises(PromptError, match="upscale_models"):
        await output("UpscaleModelLoader", ctx, model_name="missing.safetensors")


async def test_images_are_made_larger_in_one_pass() -> None:
    plan = {"scale": [4, 1], "passes": [one_pass("a", 3)]}
    ctx = FakeContext(results={"image.plan_upscale": {"plan": plan}})
    value = await output("ImageUpscaleWithModel", ctx, upscale_model=UPSCALER, image=IMAGE)
    tiles = ["image.upscale_tiles"] * 3
    assert ctx.functions() == ["image.plan_upscale", *tiles, "tiles.blend", "tiles.mean"]
    assert ctx.calls[0].inputs == {"upscaler": UPSCALER, "shape": [1, 48, 64, 3]}
    assert ctx.calls[-1].inputs["meaning"] == "picture"
    assert value == Output(ctx.calls[-1].id, "mean")


async def test_other_handles_than_upscalers_are_refused() -> None:
    with pytest.raises(PromptError, match="'upscale_model' takes a UPSCALE_MODEL, but got VAE"):
        await output("ImageUpscaleWithModel", upscale_model=VAE, image=IMAGE)
