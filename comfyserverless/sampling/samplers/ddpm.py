"""Walk by renoising: predict the clean latent, and draw the next noisier one around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from comfyserverless.sampling.noise import continue_noise, draw_step_noise
from comfyserverless.sampling.resizing import resize
from comfyserverless.sampling.samplers.base import (
    OneEvaluationSampler,
    SamplerOptions,
    SamplerState,
    begin_noise,
    derivative,
    levels,
)


def _alpha_bar(sigma: Tensor) -> Tensor:
    return 1 / ((sigma * sigma) + 1)


class Ddpm(OneEvaluationSampler):
    """Draw from the posterior of the forward process (Ho et al. 2020, arXiv 2006.11239, algorithm 2).

    Equations 7 and 11 hold in the variance-preserving view, so x goes there and back.
    """

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state, with the stream of step noise."""
        return {**super().begin(x, sigmas, seed, options), **begin_noise(x, seed, options)}

    def step(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Return the latent one level down, and the noise stream behind this step's draw."""
        sigmas, i = levels(state), state["step"]
        sigma, sigma_next = sigmas[i], sigmas[i + 1]
        x, epsilon = state["x"] / (1.0 + sigma**2.0).sqrt(), derivative(state["x"], sigma, denoised)
        alpha_bar, alpha_bar_next = _alpha_bar(sigma), _alpha_bar(sigma_next)
        alpha = alpha_bar / alpha_bar_next
        mean = (1.0 / alpha).sqrt() * (x - (1 - alpha) * epsilon / (1 - alpha_bar).sqrt())
        if sigma_next == 0:
            return {"x": mean}
        variance = (1 - alpha) * (1.0 - alpha_bar_next) / (1.0 - alpha_bar)
        noise, stream = draw_step_noise(state["noise"], x)
        return {"x": (mean + variance.sqrt() * noise) * (1.0 + sigma_next**2.0).sqrt(), "noise": stream}


class Lcm(OneEvaluationSampler):
    """Renoise the estimate to the next level (Luo et al. 2023, arXiv 2310.04378, algorithm 3).

    It is the multistep sampling of consistency models (Song et al. 2023, algorithm 1). Options: upscale (None):
    {ratio, steps, method}, to enlarge the estimate in the first steps (so many of them, -1 for half), evenly up
    to the ratio. state adds `sizes`: (width, height) after each of those steps, and `method`.
    """

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state, with the stream of step noise."""
        upscale, state = options.get("upscale"), super().begin(x, sigmas, seed, options)
        if upscale is None:
            return {**state, **begin_noise(x, seed, options), "sizes": []}
        growth: SamplerState = {"sizes": sizes_of(x.shape, len(sigmas), upscale), "method": upscale["method"]}
        return {**state, **growth, "noise": continue_noise(x, seed)}

    def step(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Return the latent one level down, and the noise stream behind this step's draw."""
        step, sigma_next = state["step"], levels(state)[state["step"] + 1]
        if step < len(state["sizes"]):
            width, height = state["sizes"][step]
            denoised = resize(denoised, width, height, state["method"])
        if sigma_next == 0:
            return {"x": denoised}
        noise, stream = draw_step_noise(state["noise"], denoised)
        return {"x": noise * sigma_next + denoised, "noise": stream}


def sizes_of(shape: Sequence[int], level_count: int, upscale: Mapping[str, Any]) -> list[list[int]]:
    """Return the [width, height] of a latent [..., h, w] after each step that enlarges it."""
    wanted = int(upscale["steps"])
    steps = max(level_count // 2, 1) if wanted < 0 else min(wanted, level_count)
    ratios = torch.linspace(1.0, float(upscale["ratio"]), steps + 1, dtype=torch.float64)[1:].tolist()
    return [[max(1, round(side * ratio)) for side in (shape[-1], shape[-2])] for ratio in ratios]
