"""Translate between our noise processes and the `model_sampling` objects that patches of packs know.

These objects have sigma_min, sigma_max (0-dimensional tensors), sigmas, timestep(sigma), sigma(timestep),
percent_to_sigma(percent), calculate_input(sigma, noise), calculate_denoised(sigma, model_output, model_input),
noise_scaling(sigma, noise, latent_image, max_denoise) and inverse_noise_scaling(sigma, latent).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from comfyserverless.sampling.parametrization import Parametrization, broadcast


class ForeignParametrization:
    """A pack's object in the role of a model's noise process; sigmas: empty if it has none."""

    def __init__(self, model_sampling: Any) -> None:
        self.model_sampling = model_sampling
        self.sigmas = torch.as_tensor(getattr(model_sampling, "sigmas", ()), dtype=torch.float32)

    @property
    def sigma_min(self) -> float:
        """Return the lowest trained noise level."""
        return float(self.model_sampling.sigma_min)

    @property
    def sigma_max(self) -> float:
        """Return the highest trained noise level."""
        return float(self.model_sampling.sigma_max)

    def timestep(self, sigma: Tensor) -> Tensor:
        """Return what the network is told for a noise level, float32."""
        return torch.as_tensor(self.model_sampling.timestep(sigma), dtype=torch.float32)

    def sigma(self, timestep: Tensor) -> Tensor:
        """Return the noise level of a (fractional) timestep, float32."""
        return torch.as_tensor(self.model_sampling.sigma(timestep), dtype=torch.float32)

    def percent_to_sigma(self, percent: float) -> float:
        """Return the noise level at a share of the way from pure noise (0) to clean (1)."""
        return float(self.model_sampling.percent_to_sigma(percent))

    def calculate_input(self, sigma: Tensor, x: Tensor) -> Tensor:
        """Scale a noisy latent to the network's input."""
        scaled: Tensor = self.model_sampling.calculate_input(_per_item(sigma, x), x)
        return scaled

    def calculate_denoised(self, sigma: Tensor, output: Tensor, x: Tensor) -> Tensor:
        """Turn the network's output at latent x into its estimate of the clean latent."""
        denoised: Tensor = self.model_sampling.calculate_denoised(_per_item(sigma, x), output, x)
        return denoised

    def add_noise(self, sigma: Tensor, noise: Tensor, latent: Tensor) -> Tensor:
        """Return the latent at noise level sigma."""
        noisy: Tensor = self.model_sampling.noise_scaling(_per_item(sigma, noise), noise, latent)
        return noisy

    def starting_latent(self, sigma: Tensor, noise: Tensor, latent: Tensor) -> Tensor:
        """Return the latent that a walk from level sigma starts from."""
        level = float(sigma)
        is_highest = level > self.sigma_max or math.isclose(self.sigma_max, level, rel_tol=1e-05)
        noisy: Tensor = self.model_sampling.noise_scaling(sigma, noise, latent, is_highest)
        return noisy

    def remove_noise_scale(self, sigma: Tensor, x: Tensor) -> Tensor:
        """Undo what noise did to the scale of the latent, at the last noise level of a walk."""
        clean: Tensor = self.model_sampling.inverse_noise_scaling(sigma, x)
        return clean


class ModelSamplingView:
    """A noise process of ours as patches see it."""

    def __init__(self, parametrization: Parametrization) -> None:
        self._process = parametrization
        self.sigmas = parametrization.sigmas
        self.log_sigmas = parametrization.sigmas.log()
        self.num_timesteps = len(parametrization.sigmas)
        self.sigma_data = float(getattr(parametrization, "sigma_data", 1.0))

    @property
    def sigma_min(self) -> Tensor:
        """Return the lowest trained noise level."""
        return torch.tensor(self._process.sigma_min)

    @property
    def sigma_max(self) -> Tensor:
        """Return the highest trained noise level."""
        return torch.tensor(self._process.sigma_max)

    def timestep(self, sigma: Tensor) -> Tensor:
        """Return what the network is told for a noise level."""
        return self._process.timestep(sigma)

    def sigma(self, timestep: Tensor) -> Tensor:
        """Return the noise level of a timestep."""
        return self._process.sigma(torch.as_tensor(timestep))

    def percent_to_sigma(self, percent: float) -> float:
        """Return the noise level at a share of the way from pure noise (0) to clean (1)."""
        return self._process.percent_to_sigma(percent)

    def calculate_input(self, sigma: Tensor, noise: Tensor) -> Tensor:
        """Scale a noisy latent to the network's input."""
        return self._process.calculate_input(sigma, noise)

    def calculate_denoised(self, sigma: Tensor, model_output: Tensor, model_input: Tensor) -> Tensor:
        """Turn the network's output into its estimate of the clean latent."""
        return self._process.calculate_denoised(sigma, model_output, model_input)

    def noise_scaling(
        self, sigma: Tensor, noise: Tensor, latent_image: Tensor, max_denoise: bool = False
    ) -> Tensor:
        """Return the latent at a noise level; max_denoise: as a walk from the highest level starts."""
        level = broadcast(torch.as_tensor(sigma), noise)
        if max_denoise:
            return self._process.starting_latent(self.sigma_max, noise, latent_image)
        return self._process.add_noise(level, noise, latent_image)

    def inverse_noise_scaling(self, sigma: Tensor, latent: Tensor) -> Tensor:
        """Undo what noise did to the scale of the latent."""
        return self._process.remove_noise_scale(torch.as_tensor(sigma), latent)


def _per_item(sigma: Tensor, x: Tensor) -> Tensor:
    return sigma.to(x.device).expand(x.shape[0]) if sigma.ndim == 0 else sigma
