"""Relate noise levels and predictions as ComfyUI's `comfy.model_sampling` classes do.

Packs mix one kind of prediction (how output becomes an estimate) with one process (which levels there are) by
inheritance, and put the object into a model; a worker then samples with it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

SIGMA_BEFORE_START = 999999999.9
_DEFAULT_BETAS = (0.00085, 0.012)


def spread(sigma: Tensor, like: Tensor) -> Tensor:
    """View levels, 0-dimensional or [B], so that they multiply `like` [B, ...]."""
    return sigma if sigma.ndim == 0 else sigma.reshape(sigma.shape[0], *[1] * (like.ndim - 1))


class EPS:
    """The network predicts the noise (Karras et al. 2022, table 1; sigma_data of the process)."""

    sigma_data: float = 1.0
    sigma_max: Any

    def calculate_input(self, sigma: Tensor, noise: Tensor) -> Tensor:
        """Scale a noisy latent to the network's input."""
        level = spread(sigma, noise)
        return noise / (level**2 + self.sigma_data**2) ** 0.5

    def calculate_denoised(self, sigma: Tensor, model_output: Tensor, model_input: Tensor) -> Tensor:
        """Turn the output at a latent into the estimate of the clean one."""
        return model_input - model_output * spread(sigma, model_output)

    def noise_scaling(
        self, sigma: Tensor, noise: Tensor, latent_image: Tensor, max_denoise: bool = False
    ) -> Tensor:
        """Return the latent at a level; max_denoise: the noise has the total variance of the process."""
        level = spread(sigma, noise)
        return noise * (torch.sqrt(1.0 + level**2.0) if max_denoise else level) + latent_image

    def inverse_noise_scaling(self, sigma: Tensor, latent: Tensor) -> Tensor:
        """Undo the scale that noise brought at the last level."""
        return latent


class V_PREDICTION(EPS):
    """The network predicts the velocity (Salimans and Ho 2022, section 4)."""

    def calculate_denoised(self, sigma: Tensor, model_output: Tensor, model_input: Tensor) -> Tensor:
        """Turn the output at a latent into the estimate of the clean one."""
        level, data = spread(sigma, model_output), self.sigma_data
        total = level**2 + data**2
        return model_input * data**2 / total - model_output * level * data / total**0.5


class EDM(V_PREDICTION):
    """The network predicts as in Karras et al. 2022, equation 7."""

    def calculate_denoised(self, sigma: Tensor, model_output: Tensor, model_input: Tensor) -> Tensor:
        """Turn the output at a latent into the estimate of the clean one."""
        level, data = spread(sigma, model_output), self.sigma_data
        total = level**2 + data**2
        return model_input * data**2 / total + model_output * level * data / total**0.5


class X0(EPS):
    """The network predicts the clean latent."""

    def calculate_denoised(self, sigma: Tensor, model_output: Tensor, model_input: Tensor) -> Tensor:
        """Return the output."""
        return model_output


class CONST(EPS):
    """Rectified flow (Liu et al. 2022): the network predicts the way from data to noise."""

    def calculate_input(self, sigma: Tensor, noise: Tensor) -> Tensor:
        """Return the latent: it has unit scale at every level."""
        return noise

    def noise_scaling(
        self, sigma: Tensor, noise: Tensor, latent_image: Tensor, max_denoise: bool = False
    ) -> Tensor:
        """Mix noise and latent."""
        level = spread(sigma, noise)
        return level * noise + (1.0 - level) * latent_image

    def inverse_noise_scaling(self, sigma: Tensor, latent: Tensor) -> Tensor:
        """Divide by the share of the latent."""
        return latent / (1.0 - spread(sigma, latent))


class IMG_TO_IMG(X0):
    """The network turns one latent into another, without noise."""

    def calculate_input(self, sigma: Tensor, noise: Tensor) -> Tensor:
        """Return the latent."""
        return noise

    def noise_scaling(
        self, sigma: Tensor, noise: Tensor, latent_image: Tensor, max_denoise: bool = False
    ) -> Tensor:
        """Return the latent."""
        return latent_image


def _settings(model_config: Any) -> dict[str, Any]:
    return dict(getattr(model_config, "sampling_settings", None) or {}) if model_config is not None else {}


class ModelSamplingDiscrete(torch.nn.Module):
    """A discrete DDPM seen as variance-exploding; betas rise with a linear square root, or linearly."""

    sigmas: Tensor
    log_sigmas: Tensor

    def __init__(self, model_config: Any = None, zsnr: bool | None = None) -> None:
        super().__init__()
        settings = _settings(model_config)
        start, end = (
            settings.get("linear_start", _DEFAULT_BETAS[0]),
            settings.get("linear_end", _DEFAULT_BETAS[1]),
        )
        steps = settings.get("timesteps", 1000)
        if settings.get("beta_schedule", "linear") == "linear":
            betas = torch.linspace(start**0.5, end**0.5, steps, dtype=torch.float64) ** 2
        else:
            betas = torch.linspace(start, end, steps, dtype=torch.float64)
        self.num_timesteps, self.linear_start, self.linear_end = steps, start, end
        self.zsnr = bool(settings.get("zsnr", False) if zsnr is None else zsnr)
        kept = torch.cumprod(1.0 - betas, dim=0)
        self.set_sigmas(_without_signal(kept) if self.zsnr else ((1 - kept) / kept) ** 0.5)

    def set_sigmas(self, sigmas: Tensor) -> None:
        """Take the trained levels, rising."""
        self.register_buffer("sigmas", sigmas.float())
        self.register_buffer("log_sigmas", sigmas.log().float())

    @property
    def sigma_min(self) -> Tensor:
        """Return the lowest trained level."""
        return self.sigmas[0]

    @property
    def sigma_max(self) -> Tensor:
        """Return the highest trained level."""
        return self.sigmas[-1]

    def timestep(self, sigma: Tensor) -> Tensor:
        """Return the index of the nearest level in log space, sigma's shape."""
        distances = sigma.log() - self.log_sigmas.to(sigma.device).reshape(-1, *[1] * sigma.ndim)
        return distances.abs().argmin(dim=0).view(sigma.shape).to(sigma.device).float()

    def sigma(self, timestep: Tensor) -> Tensor:
        """Interpolate the levels at a fractional index, linearly in log space."""
        logs = self.log_sigmas.to(timestep.device)
        position = torch.clamp(timestep.float(), min=0, max=len(self.sigmas) - 1)
        low, share = position.floor().long(), position.frac()
        return ((1 - share) * logs[low] + share * logs[position.ceil().long()]).exp()

    def percent_to_sigma(self, percent: float) -> float:
        """Return the level at a share of the way down."""
        if percent <= 0.0:
            return SIGMA_BEFORE_START
        if percent >= 1.0:
            return 0.0
        return float(self.sigma(torch.tensor((1.0 - percent) * (len(self.sigmas) - 1))))


def _without_signal(kept: Tensor) -> Tensor:
    """Shift and scale sqrt(alpha) so that the last level has no signal (Lin et al. 2023, algorithm 1)."""
    roots = kept.sqrt()
    first, last = roots[0].clone(), roots[-1].clone()
    squares = ((roots - last) * (first / (first - last))) ** 2
    squares[-1] = 4.8973451890853435e-08
    return ((1 - squares) / squares) ** 0.5


class ModelSamplingContinuousEDM(torch.nn.Module):
    """Levels between two ends, spaced evenly in log sigma (Karras et al. 2022)."""

    sigmas: Tensor

    def __init__(self, model_config: Any = None) -> None:
        super().__init__()
        settings = _settings(model_config)
        low, high = settings.get("sigma_min", 0.002), settings.get("sigma_max", 120.0)
        self.set_parameters(low, high, settings.get("sigma_data", 1.0))

    def set_parameters(self, sigma_min: float, sigma_max: float, sigma_data: float) -> None:
        """Take the ends, and the deviation of the data."""
        self.sigma_data = sigma_data
        logs = torch.linspace(math.log(sigma_min), math.log(sigma_max), 1000)
        self.register_buffer("sigmas", logs.exp())
        self.register_buffer("log_sigmas", logs)

    @property
    def sigma_min(self) -> Tensor:
        """Return the lowest level."""
        return self.sigmas[0]

    @property
    def sigma_max(self) -> Tensor:
        """Return the highest level."""
        return self.sigmas[-1]

    def timestep(self, sigma: Tensor) -> Tensor:
        """Return a quarter of log sigma (Karras et al. 2022, table 1, c_noise of EDM)."""
        return 0.25 * sigma.log()

    def sigma(self, timestep: Tensor) -> Tensor:
        """Return the level of a timestep."""
        return (timestep / 0.25).exp()

    def percent_to_sigma(self, percent: float) -> float:
        """Return the level at a share of the way down, evenly in log sigma."""
        if percent <= 0.0:
            return SIGMA_BEFORE_START
        if percent >= 1.0:
            return 0.0
        low, high = math.log(float(self.sigma_min)), math.log(float(self.sigma_max))
        return math.exp((high - low) * (1.0 - percent) + low)


class ModelSamplingContinuousV(ModelSamplingContinuousEDM):
    """The same levels, told to the network as the angle between signal and noise."""

    def timestep(self, sigma: Tensor) -> Tensor:
        """Return the angle, 0..1."""
        return sigma.atan() / math.pi * 2

    def sigma(self, timestep: Tensor) -> Tensor:
        """Return the level of an angle."""
        return (timestep * math.pi / 2).tan()


def time_snr_shift(alpha: float, t: Any) -> Any:
    """Shift times towards noise by a ratio (Esser et al. 2024, equation 23)."""
    return t if alpha == 1.0 else alpha * t / (1 + (alpha - 1) * t)


def flux_time_shift(mu: float, sigma: float, t: Any) -> Any:
    """Shift times towards noise by the logarithm of a ratio."""
    return math.exp(mu) / (math.exp(mu) + (1 / t - 1) ** sigma)


class ModelSamplingDiscreteFlow(torch.nn.Module):
    """Rectified flow with shifted times."""

    sigmas: Tensor

    def __init__(self, model_config: Any = None) -> None:
        super().__init__()
        settings = _settings(model_config)
        self.set_parameters(settings.get("shift", 1.0), multiplier=settings.get("multiplier", 1000))

    def set_parameters(self, shift: float = 1.0, timesteps: int = 1000, multiplier: float = 1000) -> None:
        """Take the shift, the number of levels, and what the network's times are multiplied by."""
        self.shift, self.multiplier = shift, multiplier
        times = torch.arange(1, timesteps + 1, 1) / timesteps
        self.register_buffer("sigmas", self.sigma(times * multiplier))

    @property
    def sigma_min(self) -> Tensor:
        """Return the lowest level."""
        return self.sigmas[0]

    @property
    def sigma_max(self) -> Tensor:
        """Return the highest level."""
        return self.sigmas[-1]

    def timestep(self, sigma: Tensor) -> Tensor:
        """Return what the network is told."""
        return sigma * self.multiplier

    def sigma(self, timestep: Tensor) -> Tensor:
        """Return the level of an unshifted time."""
        shifted: Tensor = time_snr_shift(self.shift, timestep / self.multiplier)
        return shifted

    def percent_to_sigma(self, percent: float) -> float:
        """Return the level at a share of the way down."""
        if percent <= 0.0:
            return 1.0
        if percent >= 1.0:
            return 0.0
        return float(time_snr_shift(self.shift, 1.0 - percent))


class ModelSamplingFlux(ModelSamplingDiscreteFlow):
    """Rectified flow whose shift is given as a logarithm."""

    def set_parameters(self, shift: float = 1.15, timesteps: int = 10000, multiplier: float = 1.0) -> None:
        """Take the shift and the number of levels."""
        super().set_parameters(shift, timesteps, 1.0)

    def sigma(self, timestep: Tensor) -> Tensor:
        """Return the level of an unshifted time."""
        shifted: Tensor = flux_time_shift(self.shift, 1.0, timestep)
        return shifted

    def percent_to_sigma(self, percent: float) -> float:
        """Return the level at a share of the way down."""
        if percent <= 0.0:
            return 1.0
        if percent >= 1.0:
            return 0.0
        return float(flux_time_shift(self.shift, 1.0, 1.0 - percent))


class DiscreteEps(ModelSamplingDiscrete, EPS):
    """What Stable Diffusion 1.x and XL models are."""


class DiscreteV(ModelSamplingDiscrete, V_PREDICTION):
    """What Stable Diffusion 2.x models of 768 px are."""


class ContinuousV(ModelSamplingContinuousEDM, V_PREDICTION):
    """What CosXL models are."""


class ContinuousEdm(ModelSamplingContinuousEDM, EDM):
    """What Playground v2.5 models are."""
