"""Conditioning of models for inpainting and editing: what is encoded, and what each conditioning holds."""

from __future__ import annotations

import pytest

from comfyserverless.core.values import Output
from tests.support.graph_fakes import FakeContext, tensor
from tests.support.graph_lowered import VAE, lower

TEXT = [[tensor("t", 1, 77, 8), {"pooled_output": None}]]
OTHER = [[tensor("o", 1, 77, 8), {}], [tensor("p", 1, 77, 8), {"strength": 0.5}]]
IMAGE, MASK = tensor("i", 1, 48, 64, 3), tensor("m", 1, 48, 64)


@pytest.mark.parametrize("has_noise_mask", [True, False])
async def test_both_conditionings_get_what_is_kept_and_the_latent_is_that_of_the_picture(
    has_noise_mask: bool,
) -> None:
    ctx = FakeContext()
    result = await lower(
        "InpaintModelConditioning",
        ctx,
        positive=TEXT,
        negative=OTHER,
        vae=VAE,
        pixels=IMAGE,
        mask=MASK,
        noise_mask=has_noise_mask,
    )
    erased, kept, whole = ctx.calls
    assert (erased.function, erased.inputs) == ("image.erase", {"images": IMAGE, "mask": MASK})
    assert (kept.function, kept.inputs["pixels"]) == ("vae.encode", Output(erased.id, "images"))
    assert (whole.function, whole.inputs["pixels"]) == ("vae.encode", IMAGE)
    mask = Output(erased.id, "mask")
    added = {"concat_latent_image": Output(kept.id, "samples"), "concat_mask": mask}
    positive, negative, latent = result.outputs
    assert positive == [[TEXT[0][0], {"pooled_output": None, **added}]]
    assert negative == [[OTHER[0][0], added], [OTHER[1][0], {"strength": 0.5, **added}]]
    expected = {"samples": Output(whole.id, "samples")}
    assert latent == ({**expected, "noise_mask": mask} if has_noise_mask else expected)
    assert TEXT[0][1] == {"pooled_output": None}, "unchanged"


async def test_editing_starts_from_an_empty_latent_of_the_pictures_size_and_both_sides_see_the_picture() -> (
    None
):
    ctx = FakeContext()
    result = await lower(
        "InstructPixToPixConditioning", ctx, positive=TEXT, negative=OTHER, vae=VAE, pixels=IMAGE
    )
    encoded, empty = ctx.calls
    assert (encoded.function, encoded.inputs["pixels"]) == ("vae.encode", IMAGE)
    picture = Output(encoded.id, "samples")
    assert (empty.function, empty.inputs) == ("latent.multiply", {"samples": picture, "multiplier": 0.0})
    positive, negative, latent = result.outputs
    assert positive == [[TEXT[0][0], {"pooled_output": None, "concat_latent_image": picture}]]
    assert [options["concat_latent_image"] for _, options in negative] == [picture, picture]
    assert latent == {"samples": Output(empty.id, "samples")}
