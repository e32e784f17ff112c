"""Walk with the exponential multistep integrator RES of order 2, plain or with ancestral noise and CFG++.

Zhang et al. 2023, Improved Order Analysis and Design of Exponential Integrator for Diffusion Models (arXiv
2308.02157), section 3: x_next = e^-h x + h (b1 D + b2 D_old), where phi_1 and phi_2 give the weights.
"""

from __future__ import annotations

import torch
from torch import Tensor

from comfyserverless.sampling.noise import draw_step_noise
from comfyserverless.sampling.samplers.base import (
    OneEvaluationSampler,
    SamplerOptions,
    SamplerState,
    UncondSampler,
    ancestral_levels,
    begin_noise,
    derivative,
    half_log_snr,
    level,
    level_at,
    levels,
)


class ResMultistep(OneEvaluationSampler):
    """RES with one evaluation per step; the first step and the one to level 0 are Euler's.

    ancestral: whether each step goes below the next level and returns to it with noise; options, if so: eta
    (1), s_noise (1). state adds `old_denoised` and `old_sigma_down`: the estimate before, and the level that
    the step before went down to, None at the start.
    """

    def __init__(self, ancestral: bool = False) -> None:
        self.ancestral = ancestral

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state, with the stream of step noise."""
        return {
            **super().begin(x, sigmas, seed, options),
            **begin_noise(x, seed, options if self.ancestral else {"eta": 0.0}),
            "old_denoised": None,
            "old_sigma_down": None,
        }

    def step(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Return the latent one level down, and this evaluation as history."""
        x, sigmas, i = state["x"], levels(state), state["step"]
        sigma_down, _ = ancestral_levels(sigmas[i], sigmas[i + 1], state["eta"])
        if sigma_down == 0 or state["old_denoised"] is None:
            x = x + derivative(x, sigmas[i], denoised) * (sigma_down - sigmas[i])
        else:
            x = _extrapolate(state, x, denoised, sigma_down)
        return _close(state, x, denoised)


class ResMultistepCfgPp(UncondSampler, ResMultistep):
    """RES with CFG++: the linear part starts from x + D - U, and the estimates are U."""

    def advance_with(self, state: SamplerState, denoised: Tensor, uncond: Tensor) -> SamplerState:
        """Take one step."""
        x, sigmas, i = state["x"], levels(state), state["step"]
        sigma_down, _ = ancestral_levels(sigmas[i], sigmas[i + 1], state["eta"])
        if sigma_down == 0 or state["old_denoised"] is None:
            x = denoised + derivative(x, sigmas[i], uncond) * sigma_down
        else:
            x = _extrapolate(state, x + (denoised - uncond), uncond, sigma_down)
        return {**state, **_close(state, x, uncond), "step": i + 1}


def _extrapolate(state: SamplerState, x: Tensor, estimate: Tensor, sigma_down: Tensor) -> Tensor:
    """Return the latent at sigma_down, from this estimate and the one before."""
    sigmas, i = levels(state), state["step"]
    t, t_next = half_log_snr(sigmas[i]), half_log_snr(sigma_down)
    t_old, t_before = half_log_snr(level(state, state["old_sigma_down"])), half_log_snr(sigmas[i - 1])
    h = t_next - t
    c2 = (t_before - t_old) / h
    phi_1 = torch.expm1(-h) / -h
    phi_2 = (phi_1 - 1.0) / -h
    # A step that noise brings back to where it came from has h = 0: nothing is to be added.
    b1, b2 = torch.nan_to_num(phi_1 - phi_2 / c2, nan=0.0), torch.nan_to_num(phi_2 / c2, nan=0.0)
    mixed: Tensor = b1 * estimate + b2 * state["old_denoised"]
    return level_at(h) * x + h * mixed


def _close(state: SamplerState, x: Tensor, estimate: Tensor) -> SamplerState:
    """Return what a step changes: the latent with noise added, and its history."""
    sigmas, i = levels(state), state["step"]
    sigma_down, sigma_up = ancestral_levels(sigmas[i], sigmas[i + 1], state["eta"])
    history = {"old_denoised": estimate, "old_sigma_down": float(sigma_down)}
    if sigmas[i + 1] == 0 or state["eta"] == 0:
        return {"x": x, **history}
    noise, stream = draw_step_noise(state["noise"], x)
    return {"x": x + noise * state["s_noise"] * sigma_up, "noise": stream, **history}
