"""Relate noise levels to what a denoising network takes and gives: timesteps, input scale, prediction.

Everything is float32 at the border, and sigmas are 0-dimensional or [B] tensors on any device. The
tables are computed in float64 and rounded once, because recorded images depend on their last bits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Literal, Protocol

import torch
from torch import Tensor

Prediction = Literal["epsilon", "v_prediction", "edm", "sample", "image_to_image", "rectified_flow"]
"""What the network returns: the noise; the velocity of Salimans and Ho 2022, section 4; F of Karras et al.
2022, equation 7; the clean latent, seen through a scaled or an unscaled input; or the velocity of a rectified
flow."""

SIGMA_BEFORE_START = 999999999.9
"""Stands for percent 0: larger than any noise level, so `sigma > limit` is never true at the start."""


class Parametrization(Protocol):
    """What schedules, guidance and sampling functions ask about a model's noise process.

    sigmas: [T] float32, rising: the noise levels that the model was trained at.
    """

    sigmas: Tensor

    @property
    def sigma_min(self) -> float:
        """Return the lowest trained noise level."""

    @property
    def sigma_max(self) -> float:
        """Return the highest trained noise level."""

    def timestep(self, sigma: Tensor) -> Tensor:
        """Return what the network is told for a noise level, sigma's shape, float32."""

    def sigma(self, timestep: Tensor) -> Tensor:
        """Return the noise level of a (fractional) timestep, float32."""

    def percent_to_sigma(self, percent: float) -> float:
        """Return the noise level at a share of the way from pure noise (0) to clean (1)."""

    def calculate_input(self, sigma: Tensor, x: Tensor) -> Tensor:
        """Scale a noisy latent to the network's input."""

    def calculate_denoised(self, sigma: Tensor, output: Tensor, x: Tensor) -> Tensor:
        """Turn the network's output at latent x into its estimate of the clean latent."""

    def add_noise(self, sigma: Tensor, noise: Tensor, latent: Tensor) -> Tensor:
        """Return the latent at noise level sigma."""

    def starting_latent(self, sigma: Tensor, noise: Tensor, latent: Tensor) -> Tensor:
        """Return the latent that a walk from level sigma starts from."""

    def remove_noise_scale(self, sigma: Tensor, x: Tensor) -> Tensor:
        """Undo what `add_noise` did to the scale of the latent, at the last noise level of a walk."""


def broadcast(sigma: Tensor, x: Tensor) -> Tensor:
    """View sigma, 0-dimensional or [B], so that it multiplies x [B, ...]."""
    return sigma if sigma.ndim == 0 else sigma.reshape(sigma.shape[0], *[1] * (x.ndim - 1))


class VarianceExploding(ABC):
    """A process that adds noise without scaling the latent (Karras et al. 2022, table 1).

    sigma_data: standard deviation that the clean latent is taken to have.
    """

    sigmas: Tensor

    def __init__(self, prediction: Prediction, sigma_data: float = 1.0) -> None:
        self.prediction = prediction
        self.sigma_data = sigma_data

    @property
    @abstractmethod
    def sigma_max(self) -> float:
        """Return the highest trained noise level."""

    def calculate_input(self, sigma: Tensor, x: Tensor) -> Tensor:
        """Scale x for the network, mostly to unit variance: c_in of Karras et al. 2022, table 1."""
        return input_of(self.prediction, broadcast(sigma, x), x, self.sigma_data)

    def calculate_denoised(self, sigma: Tensor, output: Tensor, x: Tensor) -> Tensor:
        """Return D(x; sigma) of Karras et al. 2022, equation 7, with c_skip and c_out of the prediction."""
        return denoised_of(self.prediction, broadcast(sigma, x), output, x, self.sigma_data)

    def add_noise(self, sigma: Tensor, noise: Tensor, latent: Tensor) -> Tensor:
        """Return latent + noise at level sigma."""
        return noise * sigma + latent

    def starting_latent(self, sigma: Tensor, noise: Tensor, latent: Tensor) -> Tensor:
        """Return latent + noise at level sigma; at the highest level the noise has VP's total variance.

        A walk that starts at the highest trained level starts from sqrt(1 + sigma^2) instead of sigma: there
        the discrete process is pure noise of unit variance, whatever the image.
        """
        if self.prediction == "rectified_flow":
            return self.add_noise(sigma, noise, latent)
        level = float(sigma)
        is_highest = level > self.sigma_max or math.isclose(self.sigma_max, level, rel_tol=1e-05)
        return noise * (torch.sqrt(1.0 + sigma**2.0) if is_highest else sigma) + latent

    def remove_noise_scale(self, sigma: Tensor, x: Tensor) -> Tensor:
        """Return x: the variance-exploding view adds noise without scaling the latent."""
        return x


def input_of(prediction: Prediction, level: Tensor, x: Tensor, sigma_data: float) -> Tensor:
    """Return the network's input for x at a level that multiplies it."""
    if prediction == "image_to_image":
        return x
    if prediction == "rectified_flow":
        return x * (1.0 - level / (level + 1))
    return x / (level**2 + sigma_data**2) ** 0.5


def denoised_of(prediction: Prediction, level: Tensor, output: Tensor, x: Tensor, sigma_data: float) -> Tensor:
    """Return the estimate of the clean latent from the network's output at x and a level that multiplies it."""
    variance = sigma_data**2
    if prediction == "epsilon":
        return x - output * level
    if prediction == "v_prediction":
        return x * variance / (level**2 + variance) - output * level * sigma_data / (level**2 + variance) ** 0.5
    if prediction == "edm":
        return x * variance / (level**2 + variance) + output * level * sigma_data / (level**2 + variance) ** 0.5
    if prediction == "rectified_flow":
        time = level / (level + 1)
        return x * (1.0 - time) - output * time
    return output


class DiscreteParametrization(VarianceExploding):
    """The variance-exploding view of a discrete DDPM (Karras et al. 2022, table 1, column iDDPM / VP).

    A sigma is called with the index of the nearest trained level in log space. sigmas: the trained levels
    [T] float64, rising.
    """

    def __init__(self, prediction: Prediction = "epsilon", sigmas: Tensor | None = None) -> None:
        super().__init__(prediction)
        exact = trained_levels() if sigmas is None else sigmas
        self.sigmas = exact.float()
        self.log_sigmas = exact.log().float()

    @property
    def sigma_min(self) -> float:
        """Return the lowest trained noise level."""
        return float(self.sigmas[0])

    @property
    def sigma_max(self) -> float:
        """Return the highest trained noise level."""
        return float(self.sigmas[-1])

    def timestep(self, sigma: Tensor) -> Tensor:
        """Return the index of the trained level nearest to sigma in log space, sigma's shape, float32."""
        distances = sigma.log() - self.log_sigmas.to(sigma.device).reshape(-1, *[1] * sigma.ndim)
        return distances.abs().argmin(dim=0).float()

    def sigma(self, timestep: Tensor) -> Tensor:
        """Interpolate the trained levels at a fractional index, linearly in log space."""
        position = torch.clamp(timestep.float(), min=0, max=len(self.sigmas) - 1)
        low = position.floor().long()
        share = position.frac()
        log_sigma = (1 - share) * self.log_sigmas[low] + share * self.log_sigmas[position.ceil().long()]
        return log_sigma.exp()

    def percent_to_sigma(self, percent: float) -> float:
        """Return the level at `percent` of the way down; 0 and less is above all levels, 1 and more is 0."""
        if percent <= 0.0:
            return SIGMA_BEFORE_START
        if percent >= 1.0:
            return 0.0
        last_index = len(self.sigmas) - 1
        return float(self.sigma(torch.tensor((1.0 - percent) * last_index)))


def trained_levels(beta_start: float = 0.00085, beta_end: float = 0.012, timesteps: int = 1000) -> Tensor:
    """Return the levels of Stable Diffusion, [T] float64: betas rise with a linear square root."""
    betas = torch.linspace(beta_start**0.5, beta_end**0.5, timesteps, dtype=torch.float64) ** 2
    alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)
    return ((1 - alphas_cumprod) / alphas_cumprod) ** 0.5


@lru_cache(maxsize=16)
def discrete_parametrization(prediction: Prediction) -> DiscreteParametrization:
    """Return the shared parametrization of Stable Diffusion 1.x, 2.x and XL models."""
    return DiscreteParametrization(prediction)
