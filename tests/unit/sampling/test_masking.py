"""Keep parts of a latent: how masks are fitted, mixed, and set one after the other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from comfyserverless.sampling.masking import KeptPart, gradual_change, latent_mask
from comfyserverless.sampling.parametrization import discrete_parametrization

EPSILON = discrete_parametrization("epsilon")
NOISE, LATENT, X = torch.randn(3, 1, 2, 2, 3, generator=torch.Generator().manual_seed(0)).unbind()
SIGMA = torch.tensor(2.0)


def kept(mask: Tensor, **more: dict[str, float]) -> KeptPart:
    return KeptPart(mask.expand_as(LATENT), NOISE, LATENT, **more)


def test_kept_part_is_the_original_at_the_level_before_and_without_noise_after() -> None:
    part = kept(torch.tensor([1.0, 0.0, 0.5]))
    before, after = part.before(X, SIGMA, EPSILON), part.after(X)
    assert torch.equal(before[..., 0], X[..., 0])
    assert torch.equal(before[..., 1], LATENT[..., 1] + 2 * NOISE[..., 1])
    assert torch.equal(after[..., 0], X[..., 0])
    assert torch.equal(after[..., 1], LATENT[..., 1])
    torch.testing.assert_close(after[..., 2], (X[..., 2] + LATENT[..., 2]) / 2)


@pytest.mark.parametrize("shape", [(16, 24), (1, 16, 24), (1, 1, 16, 24)])
def test_mask_of_any_form_is_fitted_to_the_latent_without_rounding(shape: tuple[int, ...]) -> None:
    mask = torch.linspace(0, 1, 24).expand(shape)
    fitted = latent_mask(mask, torch.zeros(3, 4, 2, 3))
    assert fitted.shape == (3, 4, 2, 3)
    assert 0 < fitted[0, 0, 0, 0] < fitted[0, 0, 0, 1] < fitted[0, 0, 0, 2] < 1


def test_several_masks_are_dealt_out_to_the_items_in_turn() -> None:
    masks = torch.stack((torch.zeros(2, 3), torch.ones(2, 3)))
    assert latent_mask(masks, torch.zeros(5, 4, 2, 3))[:, 0, 0, 0].tolist() == [0, 1, 0, 1, 0]
    assert latent_mask(masks, torch.zeros(1, 4, 2, 3)).shape[0] == 1


def test_cells_change_when_the_walk_has_come_down_to_their_share() -> None:
    sigmas = torch.tensor([EPSILON.sigma_max, 2.0, EPSILON.sigma_min, 0.0])
    part = kept(torch.tensor([1.0, 0.5, 0.0]), change=gradual_change(1.0, sigmas, EPSILON))
    levels = (EPSILON.sigma(torch.tensor(timestep)) for timestep in (999.0, 600.0, 499.0, 100.0, 0.0))
    found = [part.at(level, EPSILON).mask[0, 0, 0].tolist() for level in levels]
    assert found == [[1, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 0], [1, 1, 1]]


def test_gradual_change_of_half_strength_is_mixed_with_the_mask() -> None:
    sigmas = torch.tensor([EPSILON.sigma_max, 0.0])
    mask = torch.tensor([1.0, 0.5, 0.25])
    part = kept(mask, change=gradual_change(0.5, sigmas, EPSILON))
    assert part.at(sigmas[0], EPSILON).mask[0, 0, 0].tolist() == [1.0, 0.25, 0.125]
    assert part.at(torch.tensor(EPSILON.sigma_min), EPSILON).mask[0, 0, 0].tolist() == [1.0, 0.75, 0.625]


def test_mask_that_does_not_change_is_used_as_it_is() -> None:
    part = kept(torch.tensor([0.25, 0.5, 1.0]))
    assert part.at(SIGMA, EPSILON) is part


def test_walk_that_ends_above_zero_changes_the_last_cells_there() -> None:
    change = gradual_change(1.0, torch.tensor([10.0, 5.0, 2.0]), EPSILON)
    assert change["last"] == float(EPSILON.timestep(torch.tensor(2.0)))
    assert change["first"] == float(EPSILON.timestep(torch.tensor(10.0)))
