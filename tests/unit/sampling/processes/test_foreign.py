"""Check that noise processes survive both translations."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from comfyserverless.sampling.parametrization import discrete_parametrization
from comfyserverless.sampling.processes.foreign import ForeignParametrization, ModelSamplingView

OURS = discrete_parametrization("v_prediction")
BACK = ForeignParametrization(ModelSamplingView(OURS))
X = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(0))
SIGMA = torch.tensor(3.5)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("timestep", (SIGMA,)),
        ("sigma", (torch.tensor(499.5),)),
        ("percent_to_sigma", (0.3,)),
        ("calculate_input", (SIGMA, X)),
        ("calculate_denoised", (SIGMA, X, X + 1)),
        ("add_noise", (SIGMA, X, X + 1)),
        ("starting_latent", (SIGMA, X, X + 1)),
        ("starting_latent", (torch.tensor(OURS.sigma_max), X, X + 1)),
        ("remove_noise_scale", (SIGMA, X)),
    ],
)
def test_there_and_back_gives_the_same_bits(name: str, arguments: tuple[Any, ...]) -> None:
    ours, back = getattr(OURS, name)(*arguments), getattr(BACK, name)(*arguments)
    assert torch.equal(torch.as_tensor(ours), torch.as_tensor(back))


def test_levels_are_those_of_the_process() -> None:
    assert torch.equal(BACK.sigmas, OURS.sigmas)
    assert (BACK.sigma_min, BACK.sigma_max) == (OURS.sigma_min, OURS.sigma_max)


def test_an_object_of_a_pack_is_asked_with_one_level_per_item() -> None:
    class Doubling:
        def calculate_denoised(self, sigma: Any, model_output: Any, model_input: Any) -> Any:
            assert sigma.shape == (2,)
            return model_input - model_output * 2

    assert torch.equal(ForeignParametrization(Doubling()).calculate_denoised(SIGMA, X, X), -X)
