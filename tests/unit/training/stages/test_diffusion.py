"""The denoising loss."""

from __future__ import annotations

import torch
from torch import Tensor

from comfyserverless.training.networks.drawer import alphas_cumprod
from comfyserverless.training.stages.diffusion import denoising_loss, draw_timesteps, loss_weights


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_a_perfect_denoiser_has_no_loss() -> None:
    latents = torch.randn(16, 4, 8, 8)

    def perfect(x: Tensor, t: Tensor) -> Tensor:
        kept = alphas_cumprod()[t][:, None, None, None]
        return (x - kept.sqrt() * latents) / (1 - kept).sqrt()

    assert denoising_loss(perfect, latents, generator()) < 1e-4
    assert denoising_loss(lambda x, t: torch.zeros_like(x), latents, generator()) > 0.5


def test_timesteps_cover_all_levels_and_favour_noise() -> None:
    steps = draw_timesteps(1000, generator())
    assert steps.min() < 5
    assert steps.max() > 995
    assert steps.float().mean() > 550
    assert not torch.equal(steps, steps.sort().values)


def test_weights_are_positive_and_rise_again_towards_pure_noise() -> None:
    weights = loss_weights()
    assert weights.min() > 0
    assert weights[999] > weights[600]
    assert weights[0] < 0.1
