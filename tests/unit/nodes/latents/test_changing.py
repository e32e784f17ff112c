"""Nodes that change latents: what they ask of functions, and what they keep of the latent."""

from __future__ import annotations

import pytest

from comfyserverless.core.values import Output
from tests.support.graph_fakes import FakeContext, tensor
from tests.support.graph_lowered import output

SAMPLES = tensor("s", 2, 4, 16, 24)
MASK = tensor("m", 1, 128, 192)


async def test_changed_latent_keeps_its_noise_mask() -> None:
    ctx = FakeContext()
    latent = {"samples": SAMPLES, "noise_mask": MASK}
    value = await output("LatentFlip", ctx, samples=latent, flip_method="y-axis: horizontally")
    (call,) = ctx.calls
    assert (call.function, call.inputs["axis"]) == ("latent.flip", "y")
    assert value == {"samples": Output(call.id, "samples"), "noise_mask": MASK}


async def test_scale_by_is_in_cells() -> None:
    ctx = FakeContext()
    await output("LatentUpscaleBy", ctx, samples={"samples": SAMPLES}, upscale_method="area", scale_by=1.3)
    (call,) = ctx.calls
    assert (call.inputs["width"], call.inputs["height"]) == (31, 21)


async def test_crop_begins_at_most_64_pixels_from_the_end() -> None:
    ctx = FakeContext()
    await output("LatentCrop", ctx, samples={"samples": SAMPLES}, width=64, height=64, x=1024, y=16)
    (call,) = ctx.calls
    assert {name: call.inputs[name] for name in ("x", "y", "width", "height")} == {
        "x": 16,
        "y": 2,
        "width": 8,
        "height": 8,
    }


async def test_joined_batches_keep_the_places_of_their_items() -> None:
    value = await output(
        "LatentBatch", samples1={"samples": SAMPLES, "batch_index": [4, 7]}, samples2={"samples": SAMPLES}
    )
    assert value["batch_index"] == [4, 7, 0, 1]


@pytest.mark.parametrize(("behavior", "expected"), [("fixed", [3, 3]), ("random", None)])
async def test_seed_behavior_sets_the_places_of_items(behavior: str, expected: list[int] | None) -> None:
    latent = {"samples": SAMPLES, "batch_index": [3, 4]}
    value = await output("LatentBatchSeedBehavior", samples=latent, seed_behavior=behavior)
    assert value.get("batch_index") == expected


async def test_paste_without_a_mask_shows_all() -> None:
    ctx = FakeContext()
    given = {"destination": {"samples": SAMPLES}, "source": {"samples": SAMPLES}, "resize_source": False}
    await output("LatentCompositeMasked", ctx, x=16, y=24, **given)
    (call,) = ctx.calls
    assert (call.inputs["x"], call.inputs["y"], call.inputs["mask"]) == (2, 3, None)
