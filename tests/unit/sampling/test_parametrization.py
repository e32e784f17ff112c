"""Check the discrete parametrization against recorded facts and its own laws."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from comfyserverless.sampling.parametrization import DiscreteParametrization, discrete_parametrization
from tests.support.recorded_bits import equals_recorded

DATA = Path(__file__).parent / "data"
FACTS = json.loads((DATA / "parametrization_sd15.json").read_text())
EPSILON = discrete_parametrization("epsilon")


def test_trained_levels_equal_recorded() -> None:
    assert equals_recorded(EPSILON.sigmas, load_file(DATA / "sigmas_sd15.safetensors")["all_sigmas"])
    assert (EPSILON.sigma_min, EPSILON.sigma_max) == (FACTS["sigma_min"], FACTS["sigma_max"])


@pytest.mark.parametrize("percent", sorted(FACTS["percent_to_sigma"]))
def test_percent_gives_the_recorded_level(percent: str) -> None:
    assert EPSILON.percent_to_sigma(float(percent)) == FACTS["percent_to_sigma"][percent]


@pytest.mark.parametrize("sigma", sorted(FACTS["timestep_of_sigma"]))
def test_timestep_is_the_recorded_index(sigma: str) -> None:
    level = torch.tensor(float(sigma))
    assert float(EPSILON.timestep(level)) == FACTS["timestep_of_sigma"][sigma]
    assert EPSILON.timestep(level.expand(3)).tolist() == [FACTS["timestep_of_sigma"][sigma]] * 3


@given(index=st.integers(0, 999))
def test_timestep_inverts_sigma(index: int) -> None:
    assert float(EPSILON.timestep(EPSILON.sigma(torch.tensor(float(index))))) == index


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
def test_true_output_recovers_the_clean_latent(prediction: str) -> None:
    parametrization = DiscreteParametrization(prediction)  # type: ignore[arg-type]
    clean, noise = torch.randn(2, 2, 4, 8, 8, generator=torch.Generator().manual_seed(0)).unbind(0)
    sigma = torch.tensor([0.5, 7.0])
    level = sigma.reshape(2, 1, 1, 1)
    alpha = 1 / (level**2 + 1).sqrt()
    x = clean + level * noise
    output = noise if prediction == "epsilon" else alpha * noise - alpha * level * clean
    torch.testing.assert_close(
        parametrization.calculate_denoised(sigma, output, x), clean, atol=1e-5, rtol=1e-5
    )


def test_input_has_unit_variance_at_any_level() -> None:
    unit = torch.randn(1, 4, 64, 64, generator=torch.Generator().manual_seed(0))
    sigma = torch.tensor(5.0)
    assert float(EPSILON.calculate_input(sigma, unit * (1 + sigma**2).sqrt()).std()) == pytest.approx(
        1, abs=0.02
    )


def test_noise_at_the_highest_level_has_the_variance_of_the_whole() -> None:
    noise, latent = torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1, 1)
    highest = EPSILON.sigmas[-1]
    assert float(EPSILON.starting_latent(highest, noise, latent)) == float((1 + highest**2).sqrt())
    assert float(EPSILON.starting_latent(highest / 2, noise, latent)) == float(highest / 2)
    assert float(EPSILON.add_noise(highest, noise, latent)) == float(highest)
