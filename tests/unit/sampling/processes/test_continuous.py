"""Check the continuous processes by their laws."""

from __future__ import annotations

import math

import pytest
import torch

from comfyserverless.sampling.parametrization import VarianceExploding
from comfyserverless.sampling.processes.continuous import (
    AngleParametrization,
    ContinuousParametrization,
    FlowParametrization,
)

EDM = ContinuousParametrization("edm", 0.002, 80.0, sigma_data=0.5)
X = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "process",
    [
        EDM,
        AngleParametrization("v_prediction", 0.03, 500.0),
        FlowParametrization("rectified_flow", 0.002, 80.0),
    ],
)
def test_timestep_and_level_are_inverse(process: ContinuousParametrization) -> None:
    sigmas = torch.tensor([0.05, 1.0, 20.0])
    torch.testing.assert_close(process.sigma(process.timestep(sigmas)), sigmas, rtol=1e-4, atol=1e-5)


def test_levels_run_from_the_lowest_to_the_highest_evenly_in_log_space() -> None:
    assert (round(EDM.sigma_min, 6), round(EDM.sigma_max, 3)) == (0.002, 80.0)
    assert math.isclose(EDM.percent_to_sigma(0.5), math.sqrt(0.002 * 80.0), rel_tol=1e-5)
    assert (EDM.percent_to_sigma(0.0), EDM.percent_to_sigma(1.0)) == (999999999.9, 0.0)


def test_edm_estimate_of_a_zero_output_is_the_skip_alone() -> None:
    sigma = torch.tensor(0.5)
    torch.testing.assert_close(EDM.calculate_denoised(sigma, torch.zeros_like(X), X), X * 0.5)
    torch.testing.assert_close(EDM.calculate_input(sigma, X), X / math.sqrt(0.5))


def test_velocity_of_a_true_mixture_gives_its_clean_part() -> None:
    process: VarianceExploding = ContinuousParametrization("v_prediction", 0.002, 120.0)
    clean, noise, sigma = X, torch.flip(X, (0,)), torch.tensor(3.0)
    alpha = 1 / (1 + sigma**2) ** 0.5
    velocity = alpha * noise - alpha * sigma * clean
    noisy = process.add_noise(sigma, noise, clean)
    torch.testing.assert_close(process.calculate_denoised(sigma, velocity, noisy), clean, rtol=1e-4, atol=1e-4)


def test_rectified_flow_starts_without_extra_variance() -> None:
    process = FlowParametrization("rectified_flow", 0.002, 80.0)
    sigma = torch.tensor(80.0)
    assert torch.equal(process.starting_latent(sigma, X, X), X * sigma + X)
