"""Walk with the multistep exponential integrators DPM-Solver++(2M) and its SDE form.

Lu et al. 2022, DPM-Solver++ (arXiv 2211.01095): algorithm 2 for 2M, and what the paper calls
SDE-DPM-Solver++(2M) for the SDE. In the variance-exploding view alpha is 1, so lambda = -log sigma.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from comfyserverless.sampling.noise import begin_brownian, brownian_increment
from comfyserverless.sampling.samplers.base import OneEvaluationSampler, SamplerOptions, SamplerState, levels


def _lambda(sigma: Tensor) -> Tensor:
    return sigma.log().neg()


class Dpmpp2M(OneEvaluationSampler):
    """Extrapolate the denoised latent from the last two evaluations (algorithm 2); first order at both ends.

    state adds `old_denoised`: the evaluation before, None at the start.
    """

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state."""
        return {**super().begin(x, sigmas, seed, options), "old_denoised": None}

    def step(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Return the latent one level down, and this evaluation as history."""
        x, sigmas, i, old = state["x"], levels(state), state["step"], state["old_denoised"]
        t, t_next = _lambda(sigmas[i]), _lambda(sigmas[i + 1])
        h = t_next - t
        estimate = denoised
        if old is not None and sigmas[i + 1] != 0:
            r = (t - _lambda(sigmas[i - 1])) / h
            estimate = (1 + 1 / (2 * r)) * denoised - (1 / (2 * r)) * old
        decay = t_next.neg().exp() / t.neg().exp()
        return {"x": decay * x - (-h).expm1() * estimate, "old_denoised": denoised}


class Dpmpp2MSde(OneEvaluationSampler):
    """SDE-DPM-Solver++(2M) with Brownian noise. Options: eta (1), s_noise (1).

    solver: how the second-order term is weighted, `midpoint` or `heun`. on_cpu: noise of the CPU generator, the
    same on every machine; otherwise of the latent's device. state adds `old_denoised` and `noise`.
    """

    def __init__(self, solver: Literal["midpoint", "heun"] = "midpoint", on_cpu: bool = True) -> None:
        self.solver = solver
        self.on_cpu = on_cpu

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state, with what repeats the Brownian motion."""
        return {
            **super().begin(x, sigmas, seed, options),
            "eta": float(options.get("eta", 1.0)),
            "s_noise": float(options.get("s_noise", 1.0)),
            "old_denoised": None,
            "noise": begin_brownian(x, sigmas, seed, self.on_cpu),
        }

    def step(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Return the latent one level down, and this evaluation as history."""
        x, sigmas, i, eta = state["x"], levels(state), state["step"], state["eta"]
        if sigmas[i + 1] == 0:
            return {"x": denoised, "old_denoised": denoised}
        h = _lambda(sigmas[i + 1]) - _lambda(sigmas[i])
        alpha = sigmas[i + 1] * _lambda(sigmas[i + 1]).exp()
        x = sigmas[i + 1] / sigmas[i] * (-h * eta).exp() * x + alpha * (-h * (eta + 1)).expm1().neg() * denoised
        if state["old_denoised"] is not None:
            r = (_lambda(sigmas[i]) - _lambda(sigmas[i - 1])) / h
            x = x + self._second_order(h * (eta + 1), alpha) * (1 / r) * (denoised - state["old_denoised"])
        if eta > 0 and state["s_noise"] > 0:
            noise = brownian_increment(state["noise"], sigmas[i], sigmas[i + 1], x)
            x = x + noise * sigmas[i + 1] * (-2 * h * eta).expm1().neg().sqrt() * state["s_noise"]
        return {"x": x, "old_denoised": denoised}

    def _second_order(self, h_eta: Tensor, alpha: Tensor) -> Tensor:
        fallen: Tensor = torch.expm1(-h_eta).neg()
        if self.solver == "heun":
            return alpha * (fallen / (-h_eta) + 1)
        return 0.5 * alpha * fallen
