"""Processes whose networks are called with a function of the noise level itself, not with an index."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from comfyserverless.sampling.parametrization import SIGMA_BEFORE_START, Prediction, VarianceExploding

_LEVELS = 1000


class ContinuousParametrization(VarianceExploding):
    """The process of EDM (Karras et al. 2022): a network is called with log(sigma) / 4 (table 1, c_noise).

    low, high: the ends of its levels as they were given, before any rounding.
    """

    def __init__(self, prediction: Prediction, low: float, high: float, sigma_data: float = 1.0) -> None:
        super().__init__(prediction, sigma_data)
        self.low, self.high = low, high
        self.sigmas = torch.linspace(math.log(low), math.log(high), _LEVELS).exp()

    @property
    def sigma_min(self) -> float:
        """Return the lowest noise level."""
        return float(self.sigmas[0])

    @property
    def sigma_max(self) -> float:
        """Return the highest noise level."""
        return float(self.sigmas[-1])

    def timestep(self, sigma: Tensor) -> Tensor:
        """Return what the network is told for a noise level, sigma's shape, float32."""
        return 0.25 * sigma.log()

    def sigma(self, timestep: Tensor) -> Tensor:
        """Return the noise level that a network is told `timestep` for."""
        return (timestep / 0.25).exp()

    def percent_to_sigma(self, percent: float) -> float:
        """Return the level at `percent` of the way down, in log space; 0 and less is above all levels."""
        if percent <= 0.0:
            return SIGMA_BEFORE_START
        if percent >= 1.0:
            return 0.0
        low = math.log(self.sigma_min)
        return math.exp((math.log(self.sigma_max) - low) * (1.0 - percent) + low)


class AngleParametrization(ContinuousParametrization):
    """The process of a continuous velocity: a network is called with the angle of noise to signal, 0..1.

    Salimans and Ho 2022, section 4, where the angle is phi = arctan(sigma).
    """

    def timestep(self, sigma: Tensor) -> Tensor:
        """Return the angle of a noise level in right angles."""
        return sigma.atan() / math.pi * 2

    def sigma(self, timestep: Tensor) -> Tensor:
        """Return the noise level of an angle."""
        return (timestep * math.pi / 2).tan()


class FlowParametrization(ContinuousParametrization):
    """A rectified flow (Liu et al. 2022) seen from noise levels: a network is called with sigma / (sigma +
    1)."""

    def timestep(self, sigma: Tensor) -> Tensor:
        """Return the flow's time of a noise level."""
        return sigma / (sigma + 1)

    def sigma(self, timestep: Tensor) -> Tensor:
        """Return the noise level of a time, the highest for times beyond it."""
        time = torch.as_tensor(timestep, dtype=torch.float32)
        highest = torch.tensor(self.sigma_max)
        return torch.where(time >= highest / (highest + 1), highest, time / (1 - time))
