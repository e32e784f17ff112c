"""Walk with first-order steps: Euler, Euler with ancestral noise, DDIM, and Euler with a sharpened slope.

Euler: Karras et al. 2022 (arXiv 2206.00364), algorithm 2 without churn and without the correction.
Ancestral noise: Ho et al. 2020 (arXiv 2006.11239), algorithm 2, in the variance-exploding view of k-diffusion.
"""

from __future__ import annotations

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
    levels,
)


class Euler(OneEvaluationSampler):
    """Step along the tangent: x + (sigma_next - sigma) d (Karras et al. 2022, algorithm 2, line 7)."""

    def step(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Return the latent one level down."""
        x, sigmas, i = state["x"], levels(state), state["step"]
        d = derivative(x, sigmas[i], denoised)
        return {"x": x + d * (sigmas[i + 1] - sigmas[i])}


class Ddim(Euler):
    """DDIM with eta 0, which is Euler in the variance-exploding view (Song et al. 2021, equation 14)."""

    uses_fresh_noise_for_mask = True


class EulerAncestral(OneEvaluationSampler):
    """Step below the next level and return to it with fresh noise. Options: eta (1), s_noise (1)."""

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state, with the stream of step noise."""
        return {**super().begin(x, sigmas, seed, options), **begin_noise(x, seed, options)}

    def step(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Return the latent one level down, and the noise stream behind this step's draw."""
        x, sigmas, i = state["x"], levels(state), state["step"]
        sigma_down, sigma_up = ancestral_levels(sigmas[i], sigmas[i + 1], state["eta"])
        if sigma_down == 0:
            return {"x": denoised}
        d = derivative(x, sigmas[i], denoised)
        noise, stream = draw_step_noise(state["noise"], x)
        x = x + d * (sigma_down - sigmas[i]) + noise * state["s_noise"] * sigma_up
        return {"x": x, "noise": stream}


class EulerAncestralCfgPp(UncondSampler):
    """Euler with ancestral noise and CFG++: D + sigma_down d, where d is the slope from U (algorithm 2).

    ancestral: whether fresh noise is added. Options, if so: eta (1), s_noise (1); if not: is_alternative
    (False), an Euler step along the slope from D at x - D + U.
    """

    def __init__(self, ancestral: bool = True) -> None:
        self.ancestral = ancestral

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state, with the stream of step noise."""
        noise = begin_noise(x, seed, options if self.ancestral else {"eta": 0.0})
        is_alternative = not self.ancestral and bool(options.get("is_alternative", False))
        return {**super().begin(x, sigmas, seed, options), **noise, "is_alternative": is_alternative}

    def advance_with(self, state: SamplerState, denoised: Tensor, uncond: Tensor) -> SamplerState:
        """Return the latent one level down, and the noise stream behind this step's draw."""
        x, sigmas, i, eta = state["x"], levels(state), state["step"], state["eta"]
        following: SamplerState = {**state, "step": i + 1}
        if state["is_alternative"]:
            d = derivative(x - denoised + uncond, sigmas[i], denoised)
            return {**following, "x": x + d * (sigmas[i + 1] - sigmas[i])}
        if sigmas[i + 1] == 0:
            return {**following, "x": denoised}
        alpha_s, alpha_t = (sigma * half_log_snr(sigma).exp() for sigma in (sigmas[i], sigmas[i + 1]))
        d = derivative(x, sigmas[i], alpha_s * uncond)
        sigma_down, sigma_up = ancestral_levels(sigmas[i] / alpha_s, sigmas[i + 1] / alpha_t, eta)
        x = alpha_t * denoised + alpha_t * sigma_down * d
        if eta > 0 and state["s_noise"] > 0:
            noise, stream = draw_step_noise(state["noise"], x)
            x = x + alpha_t * noise * state["s_noise"] * sigma_up
            following["noise"] = stream
        return {**following, "x": x}


class GradientEstimation(OneEvaluationSampler):
    """Euler with the slope corrected by its change since the last step: d + (gamma - 1) (d - d_old).

    Permenter and Yuan 2024 (arXiv 2306.04848), algorithm 2. Options: ge_gamma (2). state adds `old_d`: the
    slope one step back, None at the start.
    """

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state."""
        gamma = float(options.get("ge_gamma", 2.0))
        return {**super().begin(x, sigmas, seed, options), "ge_gamma": gamma, "old_d": None}

    def step(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Return the latent one level down, and this slope as history."""
        x, sigmas, i = state["x"], levels(state), state["step"]
        d = derivative(x, sigmas[i], denoised)
        return self._correct(state, d, x + d * (sigmas[i + 1] - sigmas[i]), denoised)

    def _correct(self, state: SamplerState, d: Tensor, x: Tensor, denoised: Tensor) -> SamplerState:
        """Add to an Euler step's end x what the change of the slope says; level 0 takes D itself."""
        sigmas, i, old_d = levels(state), state["step"], state["old_d"]
        if sigmas[i + 1] == 0:
            return {"x": denoised, "old_d": d}
        if old_d is not None:
            x = x + (state["ge_gamma"] - 1) * (d - old_d) * (sigmas[i + 1] - sigmas[i])
        return {"x": x, "old_d": d}


class GradientEstimationCfgPp(UncondSampler, GradientEstimation):
    """Gradient estimation with CFG++: the slope from U, and the step from D."""

    def advance_with(self, state: SamplerState, denoised: Tensor, uncond: Tensor) -> SamplerState:
        """Return the latent one level down, and this slope as history."""
        sigmas, i = levels(state), state["step"]
        d = derivative(state["x"], sigmas[i], uncond)
        changes = self._correct(state, d, denoised + d * sigmas[i + 1], denoised)
        return {**state, **changes, "step": i + 1}
