"""Check the variants of the discrete process by their laws."""

from __future__ import annotations

import torch

from comfyserverless.sampling.parametrization import DiscreteParametrization, trained_levels
from comfyserverless.sampling.processes.discrete import ConsistencyParametrization, zero_terminal_levels

LCM = ConsistencyParametrization()


def test_levels_without_terminal_signal_keep_the_first_and_drown_the_last() -> None:
    levels, trained = zero_terminal_levels(), trained_levels()
    assert torch.isclose(levels[0], trained[0])
    assert (levels[1:] > trained[1:]).all()
    assert 4000 < float(levels[-1]) < 5000
    assert DiscreteParametrization("v_prediction", levels).sigma_max == float(levels[-1].float())


def test_consistency_models_use_every_twentieth_trained_level() -> None:
    assert torch.equal(LCM.sigmas, trained_levels()[19::20].float())
    assert float(LCM.timestep(LCM.sigmas[-1])) == 999
    assert float(LCM.timestep(LCM.sigmas[0])) == 19
    torch.testing.assert_close(LCM.sigma(torch.tensor(39.0)), LCM.sigmas[1])


def test_consistency_share_of_the_way_counts_all_timesteps() -> None:
    trained = DiscreteParametrization()
    assert abs(LCM.percent_to_sigma(0.5) / trained.percent_to_sigma(0.5) - 1) < 0.01
    assert LCM.percent_to_sigma(1.0) == 0.0


def test_consistency_estimate_is_nearly_the_noise_prediction_at_high_timesteps() -> None:
    x, output = torch.full((1, 4, 2, 2), 2.0), torch.full((1, 4, 2, 2), 0.5)
    sigma = LCM.sigmas[-1]
    torch.testing.assert_close(
        LCM.calculate_denoised(sigma, output, x), x - output * sigma, rtol=1e-3, atol=1e-3
    )
