"""Variants of the discrete process: without signal at the last level, and of consistency models."""

from __future__ import annotations

import torch
from torch import Tensor

from comfyserverless.sampling.parametrization import DiscreteParametrization, broadcast, trained_levels

_LAST_SIGNAL = 4.8973451890853435e-08
"""The share of signal, as a variance, that stands for none at the last level."""

_DISTILLED_LEVELS = 50
_TIMESTEP_SCALE = 10.0
_BOUNDARY_SIGMA_DATA = 0.5


def zero_terminal_levels() -> Tensor:
    """Return the trained levels, [T] float64, shifted so that the last one holds no signal.

    Lin et al. 2023, Common Diffusion Noise Schedules and Sample Steps are Flawed, algorithm 1.
    """
    signal = (1 / (trained_levels() ** 2 + 1)).sqrt()
    first, last = signal[0].clone(), signal[-1].clone()
    variance = ((signal - last) * (first / (first - last))) ** 2
    variance[-1] = _LAST_SIGNAL
    return ((1 - variance) / variance) ** 0.5


class ConsistencyParametrization(DiscreteParametrization):
    """The process of latent consistency models (Luo et al. 2023, arXiv 2310.04378): every 20th trained level.

    Their estimate is mixed with the noisy latent so that it is exact at the first timestep (section 4.1,
    equation 9, with timesteps times 10 and sigma_data 0.5).
    """

    def __init__(self, sigmas: Tensor | None = None) -> None:
        exact = trained_levels() if sigmas is None else sigmas
        self._stride = len(exact) // _DISTILLED_LEVELS
        super().__init__("epsilon", exact.float()[self._stride - 1 :: self._stride])

    def timestep(self, sigma: Tensor) -> Tensor:
        """Return the timestep, of all trained ones, whose level is nearest among the used ones."""
        return super().timestep(sigma) * self._stride + (self._stride - 1)

    def sigma(self, timestep: Tensor) -> Tensor:
        """Interpolate the used levels at a timestep, linearly in log space."""
        return super().sigma((timestep.float() - (self._stride - 1)) / self._stride)

    def percent_to_sigma(self, percent: float) -> float:
        """Return the level at `percent` of the way down, counted over all trained timesteps."""
        if not 0.0 < percent < 1.0:
            return super().percent_to_sigma(percent)
        last_timestep = len(self.sigmas) * self._stride - 1
        return float(self.sigma(torch.tensor((1.0 - percent) * last_timestep)))

    def calculate_denoised(self, sigma: Tensor, output: Tensor, x: Tensor) -> Tensor:
        """Return the estimate of a noise prediction, mixed with the latent by the timestep."""
        estimate = super().calculate_denoised(sigma, output, x)
        time = broadcast(self.timestep(sigma), x) * _TIMESTEP_SCALE
        variance = _BOUNDARY_SIGMA_DATA**2
        kept = variance / (time**2 + variance)
        return time / (time**2 + variance) ** 0.5 * estimate + kept * x
