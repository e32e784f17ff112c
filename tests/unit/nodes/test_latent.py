"""Latents and autoencoders."""

from __future__ import annotations

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import FileRef, Output
from tests.support.graph_fakes import FakeContext, tensor
from tests.support.graph_lowered import VAE, lower, output

SAMPLES = tensor("s", 1, 4, 8, 12)


async def test_empty_latent_is_made_by_a_host_function() -> None:
    ctx = FakeContext()
    value = await output("EmptyLatentImage", ctx, width=96, height=64, batch_size=2)
    (call,) = ctx.calls
    assert (call.function, call.inputs) == ("latent.empty", {"width": 96, "height": 64, "batch_size": 2})
    assert value == {"samples": Output(call.id, "samples")}


@pytest.mark.parametrize(
    ("width", "height", "cells"),
    [
        (512, 256, (64, 32)),
        (0, 128, (24, 16)),
        (192, 0, (24, 16)),
        (16, 16, (8, 8)),
        (0, 16, (12, 8)),
        (16, 0, (8, 8)),
    ],
)
async def test_upscaled_latent_has_whole_cells_and_at_least_64_pixels(
    width: int, height: int, cells: tuple[int, int]
) -> None:
    ctx = FakeContext()
    value = await output(
        "LatentUpscale",
        ctx,
        samples={"samples": SAMPLES, "batch_index": [1]},
        upscale_method="bislerp",
        width=width,
        height=height,
        crop="disabled",
    )
    (call,) = ctx.calls
    assert (call.inputs["width"], call.inputs["height"]) == cells
    assert value == {"samples": Output(call.id, "samples"), "batch_index": [1]}


async def test_latent_scaled_to_nothing_is_given_back() -> None:
    latent = {"samples": SAMPLES}
    sizes = {"width": 0, "height": 0}
    value = await output("LatentUpscale", samples=latent, upscale_method="area", crop="disabled", **sizes)
    assert value == latent


async def test_latent_is_saved_with_metadata_and_shown_as_latents() -> None:
    ctx = FakeContext(results={"latent.save": {"files": ["/output/latents/.save1_0.part"]}})
    result = await lower("SaveLatent", ctx, samples={"samples": SAMPLES}, filename_prefix="latents/x")
    (call,) = ctx.calls
    assert call.inputs["samples"] == SAMPLES
    assert call.inputs["directory"] == "/output/latents"
    assert set(call.inputs["metadata"]) == {"prompt"}
    assert result.ui == {"latents": [{"filename": "x_00001_.latent", "subfolder": "latents", "type": "output"}]}


async def test_latent_is_loaded_from_an_upload() -> None:
    ctx = FakeContext()
    value = await output("LoadLatent", ctx, latent="a.latent")
    assert ctx.calls[0].inputs == {"file": FileRef("/input/a.latent")}
    assert value == {"samples": Output(ctx.calls[0].id, "samples")}


async def test_autoencoder_turns_latents_into_images_and_back() -> None:
    ctx = FakeContext()
    images = await output("VAEDecode", ctx, samples={"samples": SAMPLES, "noise_mask": 1}, vae=VAE)
    latent = await output("VAEEncode", ctx, pixels=images, vae=VAE)
    decode, encode = ctx.calls
    assert (decode.function, decode.inputs) == ("vae.decode", {"vae": VAE, "samples": SAMPLES})
    assert (encode.function, encode.inputs) == (
        "vae.encode",
        {"vae": VAE, "pixels": Output(decode.id, "images")},
    )
    assert latent == {"samples": Output(encode.id, "samples")}


@pytest.mark.parametrize("value", ["x", None, {}, {"samples": 1}, SAMPLES])
async def test_value_that_is_no_latent_is_refused(value: object) -> None:
    with pytest.raises(PromptError, match="'samples' takes a LATENT"):
        await output("VAEDecode", samples=value, vae=VAE)


MASK = tensor("m", 1, 64, 96)


async def test_composite_counts_pixels_in_cells_and_keeps_the_first_latents_rest() -> None:
    ctx, under = FakeContext(), {"samples": SAMPLES, "noise_mask": MASK}
    over = {"samples": tensor("o", 1, 4, 2, 2)}
    place = {"x": 16, "y": 31, "feather": 8}
    value = await output("LatentComposite", ctx, samples_to=under, samples_from=over, **place)
    (call,) = ctx.calls
    assert call.inputs == {
        "samples_to": SAMPLES,
        "samples_from": over["samples"],
        "x": 2,
        "y": 3,
        "feather": 1,
    }
    assert value == {"samples": Output(call.id, "samples"), "noise_mask": MASK}


async def test_repeated_items_get_places_of_their_own() -> None:
    ctx = FakeContext()
    latent = {"samples": SAMPLES, "batch_index": [2, 5], "noise_mask": MASK}
    value = await output("RepeatLatentBatch", ctx, samples=latent, amount=3)
    (call,) = ctx.calls
    assert call.inputs == {"samples": SAMPLES, "noise_mask": MASK, "amount": 3}
    assert value == {
        "samples": Output(call.id, "samples"),
        "noise_mask": Output(call.id, "noise_mask"),
        "batch_index": [2, 5, 6, 9, 10, 13],
    }


async def test_repeated_latent_without_places_and_masks_has_none_after() -> None:
    ctx = FakeContext()
    value = await output("RepeatLatentBatch", ctx, samples={"samples": SAMPLES}, amount=2)
    assert ctx.calls[0].inputs["noise_mask"] is None
    assert value == {"samples": Output(ctx.calls[0].id, "samples")}


async def test_places_of_a_batch_that_is_repeated_over_and_over_end() -> None:
    latent = {"samples": SAMPLES, "batch_index": list(range(2048))}
    with pytest.raises(PromptError, match="would have 131072 items, at most 65536"):
        await output("RepeatLatentBatch", samples=latent, amount=64)


@pytest.mark.parametrize(
    ("asked", "given"), [((1, 2), (1, 2)), ((0, 64), (0, 4)), ((3, 3), (3, 1)), ((63, 1), (3, 1))]
)
async def test_items_are_taken_from_what_there_is_and_remember_their_places(
    asked: tuple[int, int], given: tuple[int, int]
) -> None:
    ctx, (start, length) = FakeContext(), given
    samples = tensor("s", 4, 4, 8, 12)
    for places in (None, [10, 20, 30, 40]):
        latent = {"samples": samples} if places is None else {"samples": samples, "batch_index": places}
        value = await output("LatentFromBatch", ctx, samples=latent, batch_index=asked[0], length=asked[1])
        call = ctx.calls[-1]
        assert (call.inputs["start"], call.inputs["length"]) == given
        assert value["samples"] == Output(call.id, "samples")
        assert value["batch_index"] == (places or [0, 1, 2, 3])[start : start + length]
