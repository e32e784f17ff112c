"""Noise masks: setting them, encoding for them, and carrying them to the sampler."""

from __future__ import annotations

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import Output, Patch
from tests.support.graph_fakes import FakeContext, tensor
from tests.support.graph_lowered import MODEL, VAE, lower, output

MASK = tensor("m", 1, 48, 64)
IMAGE = tensor("i", 1, 48, 64, 3)
SAMPLES = tensor("s", 1, 4, 6, 8)
TEXT = [[tensor("t", 1, 77, 8), {}]]


async def test_setting_a_noise_mask_runs_nothing_and_keeps_the_rest_of_the_latent() -> None:
    ctx, latent = FakeContext(), {"samples": SAMPLES, "batch_index": [3]}
    value = await output("SetLatentNoiseMask", ctx, samples=latent, mask=MASK)
    assert value == {"samples": SAMPLES, "batch_index": [3], "noise_mask": MASK}
    assert ctx.calls == []
    assert "noise_mask" not in latent


async def test_encoding_for_inpainting_gives_samples_and_a_noise_mask() -> None:
    ctx = FakeContext()
    value = await output("VAEEncodeForInpaint", ctx, pixels=IMAGE, vae=VAE, mask=MASK, grow_mask_by=6)
    (call,) = ctx.calls
    assert (call.function, call.inputs) == (
        "vae.encode_inpaint",
        {"vae": VAE, "pixels": IMAGE, "mask": MASK, "grow_by": 6},
    )
    assert value == {"samples": Output(call.id, "samples"), "noise_mask": Output(call.id, "noise_mask")}


async def test_sampler_is_given_the_noise_mask_and_hands_it_on() -> None:
    plan = {"steps": 1, "maximum": 1, "is_dynamic": False, "evaluations": []}
    ctx = FakeContext(results={"sample.begin": {"plan": plan}})
    latent = await output("SetLatentNoiseMask", samples={"samples": SAMPLES}, mask=MASK)
    value = await output(
        "KSampler",
        ctx,
        model=MODEL,
        seed=1,
        steps=1,
        cfg=7.0,
        sampler_name="euler",
        scheduler="normal",
        positive=TEXT,
        negative=TEXT,
        latent_image=latent,
        denoise=1.0,
    )
    assert ctx.calls[0].inputs["latent"] == {"samples": SAMPLES, "noise_mask": MASK}
    assert value == {"samples": Output(ctx.calls[-1].id, "samples"), "noise_mask": MASK}


async def test_padded_image_and_its_mask_come_from_one_invocation() -> None:
    ctx, sides = FakeContext(), {"left": 8, "top": 0, "right": 16, "bottom": 24}
    image, mask = (await lower("ImagePadForOutpaint", ctx, image=IMAGE, feathering=5, **sides)).outputs
    (call,) = ctx.calls
    assert (call.function, call.inputs) == ("image.pad", {"images": IMAGE, "feathering": 5, **sides})
    assert (image, mask) == (Output(call.id, "images"), Output(call.id, "mask"))


async def test_gradual_change_is_a_patch_of_the_model_and_the_last_one_counts() -> None:
    once = await output("DifferentialDiffusion", model=MODEL)
    assert once.patches == (Patch("differential_diffusion", (("strength", 1.0),)),)
    twice = await output("DifferentialDiffusion", model=once, strength=0.5)
    assert twice.patches == (Patch("differential_diffusion", (("strength", 0.5),)),)
    assert (twice.file, twice.loras) == (MODEL.file, MODEL.loras)


async def test_image_instead_of_a_latent_is_refused() -> None:
    with pytest.raises(PromptError, match="'samples' takes a LATENT"):
        await output("SetLatentNoiseMask", samples=IMAGE, mask=MASK)
