"""The denoising loss: predict the noise in noisy latents (Ho et al. 2020, eq. 14), weighted over the noise
levels.

Weights follow min-SNR (Hang et al. 2023, gamma 5) and rise towards pure noise, where the large flat colours
of a picture are decided; timesteps are denser there, and the noise has a small offset, so that its mean says
nothing of the background.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from comfyserverless.training.networks.drawer import TRAIN_STEPS, alphas_cumprod

_GAMMA = 5.0
_DENSITY = 0.7
_OFFSET = 0.05

Denoiser = Callable[[Tensor, Tensor], Tensor]
"""Noisy latents [n, 4, h, w] and timesteps [n] to the noise in them."""


@lru_cache(maxsize=1)
def loss_weights() -> Tensor:
    """Return the weight [1000] of every timestep."""
    alphas = alphas_cumprod()
    ratio = alphas / (1 - alphas)
    return ratio.clamp(max=_GAMMA) / ratio * (1 + 1 / ratio).sqrt()


def draw_timesteps(count: int, generator: torch.Generator) -> Tensor:
    """Return `count` timesteps, one from each of as many strata, in random order."""
    strata = (torch.arange(count) + torch.rand(count, generator=generator)) / count
    steps = (TRAIN_STEPS * strata**_DENSITY).long().clamp(max=TRAIN_STEPS - 1)
    return steps[torch.randperm(count, generator=generator)]


def denoising_loss(denoise: Denoiser, latents: Tensor, generator: torch.Generator) -> Tensor:
    """Return the weighted mean squared error of the predicted noise for clean latents [n, 4, h, w]."""
    count = len(latents)
    steps = draw_timesteps(count, generator)
    noise = torch.randn(latents.shape, generator=generator)
    noise = noise + _OFFSET * torch.randn(count, latents.shape[1], 1, 1, generator=generator)
    kept = alphas_cumprod()[steps][:, None, None, None]
    error = denoise(kept.sqrt() * latents + (1 - kept).sqrt() * noise, steps) - noise
    return (error.square().mean((1, 2, 3)) * loss_weights()[steps]).mean()
