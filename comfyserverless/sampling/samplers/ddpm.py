"""Walk by renoising: predict the clean latent, and draw the next noisier one around it."""

from __future__ import annotations

from torch import Tensor

from comfyserverless.sampling.noise import draw_step_noise
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

    It is the multistep sampling of consistency models (Song et al. 2023, algorithm 1).
    """

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state, with the stream of step noise."""
        return {**super().begin(x, sigmas, seed, options), **begin_noise(x, seed, options)}

    def step(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Return the latent one level down, and the noise stream behind this step's draw."""
        sigma_next = levels(state)[state["step"] + 1]
        if sigma_next == 0:
            return {"x": denoised}
        noise, stream = draw_step_noise(state["noise"], state["x"])
        return {"x": noise * sigma_next + denoised, "noise": stream}
