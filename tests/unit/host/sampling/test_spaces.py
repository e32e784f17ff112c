"""Relate levels and predictions as the engine does, bit for bit."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from comfyserverless.host.sampling import spaces
from comfyserverless.sampling.parametrization import discrete_parametrization
from comfyserverless.sampling.processes.foreign import ForeignParametrization

X, OUTPUT = torch.tensor([[0.3, -1.2]]), torch.tensor([[0.5, 0.1]])


@pytest.mark.parametrize(
    ("made", "prediction"), [(spaces.DiscreteEps, "epsilon"), (spaces.DiscreteV, "v_prediction")]
)
def test_discrete_process_has_the_bits_of_the_engine(made: type, prediction: str) -> None:
    theirs, ours = made(), discrete_parametrization(prediction)  # type: ignore[arg-type]
    sigma = torch.tensor([3.7])
    assert torch.equal(theirs.sigmas, ours.sigmas)
    assert torch.equal(theirs.log_sigmas, ours.log_sigmas)
    assert torch.equal(theirs.timestep(sigma), ours.timestep(sigma))
    assert torch.equal(theirs.sigma(torch.tensor(3.5)), ours.sigma(torch.tensor(3.5)))
    assert theirs.percent_to_sigma(0.3) == ours.percent_to_sigma(0.3)
    assert torch.equal(theirs.calculate_input(sigma, X), ours.calculate_input(sigma, X))
    denoised = theirs.calculate_denoised(sigma, OUTPUT, X)
    torch.testing.assert_close(denoised, ours.calculate_denoised(sigma, OUTPUT, X), rtol=1e-6, atol=0)
    start = ForeignParametrization(theirs).starting_latent(theirs.sigma_max, OUTPUT, X)
    assert torch.equal(start, ours.starting_latent(torch.tensor(ours.sigma_max), OUTPUT, X))


def test_pack_mixes_a_process_with_a_prediction() -> None:
    class Mixed(spaces.ModelSamplingDiscreteFlow, spaces.CONST):
        """As packs do it."""

    flow = Mixed()
    flow.set_parameters(shift=3.0)
    half = torch.tensor([0.5])
    assert float(flow.sigma(torch.tensor(500.0))) == pytest.approx(0.75)
    assert torch.allclose(flow.calculate_denoised(half, OUTPUT, X), X - 0.5 * OUTPUT)
    assert torch.allclose(flow.noise_scaling(half, OUTPUT, X), 0.5 * OUTPUT + 0.5 * X)
    assert torch.allclose(flow.inverse_noise_scaling(half, X), X * 2)
    assert flow.percent_to_sigma(0.0) == 1.0
    assert flow.percent_to_sigma(0.5) == pytest.approx(0.75)


def test_settings_of_a_model_shape_its_process() -> None:
    config = SimpleNamespace(sampling_settings={"timesteps": 500, "linear_end": 0.01})
    assert len(spaces.ModelSamplingDiscrete(config).sigmas) == 500
    edm = spaces.ModelSamplingContinuousEDM(
        SimpleNamespace(sampling_settings={"sigma_min": 0.1, "sigma_max": 10.0})
    )
    assert float(edm.sigma_max) == pytest.approx(10.0)
    assert edm.percent_to_sigma(0.5) == pytest.approx(1.0)
    assert float(edm.sigma(edm.timestep(torch.tensor(2.0)))) == pytest.approx(2.0)


def test_zero_terminal_snr_ends_without_signal() -> None:
    assert float(spaces.ModelSamplingDiscrete(zsnr=True).sigma_max) > 4000
