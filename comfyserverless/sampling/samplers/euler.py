"""Walk with first-order steps: Euler, Euler with ancestral noise, and DDIM.

Euler: Karras et al. 2022 (arXiv 2206.00364), algorithm 2 without churn and without the correction.
Ancestral noise: Ho et al. 2020 (arXiv 2006.11239), algorithm 2, in the variance-exploding view of k-diffusion.
"""

from __future__ import annotations

from torch import Tensor

from comfyserverless.sampling.noise import begin_step_noise, draw_step_noise
from comfyserverless.sampling.samplers.base import (
    OneEvaluationSampler,
    SamplerOptions,
    SamplerState,
    derivative,
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


def ancestral_levels(sigma_from: Tensor, sigma_to: Tensor, eta: float) -> tuple[Tensor, Tensor]:
    """Split a step into (sigma_down, sigma_up): the level to step to, and the noise to add to reach sigma_to.

    sigma_up^2 is eta^2 times the posterior variance of the forward process (Ho et al. 2020, equation 7).
    """
    variance = sigma_to**2 * (sigma_from**2 - sigma_to**2) / sigma_from**2
    sigma_up = (eta * variance**0.5).clamp(max=sigma_to)
    return (sigma_to**2 - sigma_up**2) ** 0.5, sigma_up


class EulerAncestral(OneEvaluationSampler):
    """Step below the next level and return to it with fresh noise. Options: eta (1), s_noise (1)."""

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state, with the stream of step noise."""
        return {
            **super().begin(x, sigmas, seed, options),
            "eta": float(options.get("eta", 1.0)),
            "s_noise": float(options.get("s_noise", 1.0)),
            "noise": begin_step_noise(x, seed),
        }

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
