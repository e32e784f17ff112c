"""What models for inpainting, and for editing, take beside the latent."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from comfyserverless.sampling.inpainting import editing_input, inpainting_input
from comfyserverless.sampling.masking import KeptPart

X = torch.rand(2, 4, 6, 8, generator=torch.Generator().manual_seed(1))
GIVEN = torch.rand(1, 4, 6, 8, generator=torch.Generator().manual_seed(2))
BLACK = torch.tensor([0.8223, -0.6876, 0.6364, 0.1380])


def twice(latent: Tensor) -> Tensor:
    return latent * 2


def kept(mask: Tensor) -> KeptPart:
    return KeptPart(mask.expand_as(X), torch.zeros_like(X), X + 1)


def test_without_a_mask_all_is_painted_and_black_is_seen() -> None:
    got = inpainting_input(X, {"concat_latent_image": GIVEN}, None, twice)
    assert torch.equal(got[:, :1], torch.ones(2, 1, 6, 8))
    assert torch.equal(got[:, 1:], BLACK[None, :, None, None].expand_as(X))


def test_mask_and_latent_of_the_conditioning_are_taken_in_units_of_the_model() -> None:
    mask = torch.zeros(1, 1, 48, 64)
    mask[..., 16:32, 8:24] = 0.9
    got = inpainting_input(X, {"concat_latent_image": GIVEN, "concat_mask": mask}, kept(X[:, :1]), twice)
    assert got.shape == (2, 5, 6, 8)
    expected = torch.zeros(6, 8)
    expected[2:4, 1:3] = 1
    assert torch.equal(got[:, 0], expected.expand(2, 6, 8))
    assert torch.equal(got[:, 1:], (GIVEN * 2).expand(2, 4, 6, 8))


def test_the_noise_mask_and_the_latent_stand_in_for_what_the_conditioning_lacks() -> None:
    mask = torch.zeros(1, 1, 6, 8)
    mask[..., :3, :] = 0.6
    got = inpainting_input(X, {}, kept(mask), twice)
    assert torch.equal(got[:, :1], mask.round().expand(2, 1, 6, 8))
    assert torch.equal(got[:, 1:], X + 1)
    black = inpainting_input(X, {"concat_mask": mask}, None, twice)
    assert torch.equal(black[:, 1:], BLACK[None, :, None, None].expand_as(X))


@pytest.mark.parametrize(
    ("items", "taken"), [(1, [0, 0]), (2, [0, 1]), (3, [0, 2])], ids=["repeated", "equal", "spread"]
)
def test_masks_of_another_batch_size_are_spread_over_the_latents(items: int, taken: list[int]) -> None:
    masks = torch.stack([torch.full((6, 8), float(at % 2 == 0)) for at in range(items)])
    got = inpainting_input(X, {"concat_mask": masks}, None, twice)
    assert torch.equal(got[:, 0], masks[taken])


def test_many_latents_of_few_masks() -> None:
    x, masks = X.repeat(2, 1, 1, 1), torch.stack([torch.zeros(6, 8), torch.ones(6, 8)])
    got = inpainting_input(x, {"concat_mask": masks}, None, twice)
    assert torch.equal(got[:, 0], masks[[0, 0, 1, 1]])
    single = inpainting_input(x[:1], {"concat_mask": masks}, None, twice)
    assert torch.equal(single[:, 0], masks[:1])


def test_what_has_another_ratio_is_cut_around_its_centre() -> None:
    wide = torch.zeros(1, 48, 128)
    wide[..., 32:96] = 1
    high = torch.zeros(1, 96, 64)
    high[:, 24:72] = 1
    for mask in (wide, high):
        got = inpainting_input(X, {"concat_mask": mask}, None, twice)
        assert torch.equal(got[:, 0], torch.ones(2, 6, 8))
    larger = torch.ones(1, 4, 12, 16)
    got = inpainting_input(X, {"concat_mask": wide, "concat_latent_image": larger}, None, twice)
    torch.testing.assert_close(got[:, 1:], torch.full_like(X, 2.0))


def test_an_editing_model_sees_the_picture_as_it_is_encoded_or_nothing() -> None:
    assert torch.equal(editing_input(X, {}, None), torch.zeros_like(X))
    seen = {"concat_latent_image": GIVEN}
    assert torch.equal(editing_input(X, seen, None), GIVEN.expand_as(X))
    assert torch.equal(editing_input(X, seen, twice), (GIVEN * 2).expand_as(X))


def test_a_picture_to_edit_is_fitted_to_the_latent() -> None:
    wide = torch.arange(24.0).expand(3, 4, 12, 24)
    fitted = editing_input(X, {"concat_latent_image": wide}, None)
    assert fitted.shape == X.shape
    assert torch.equal(fitted[0, 0, 0], wide[0, 0, 0, 4:20].reshape(8, 2).mean(1))
