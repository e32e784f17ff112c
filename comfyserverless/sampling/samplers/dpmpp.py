"""Walk with the multistep exponential integrators DPM-Solver++(2M), its SDE form, and the SDE form of order 3.

Lu et al. 2022, DPM-Solver++ (arXiv 2211.01095): algorithm 2 for 2M, and what the paper calls
SDE-DPM-Solver++(2M) for the SDE. In the variance-exploding view alpha is 1, so lambda = -log sigma.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from comfyserverless.sampling.noise import begin_brownian, brownian_increment
from comfyserverless.sampling.samplers.base import (
    OneEvaluationSampler,
    SamplerOptions,
    SamplerState,
    UncondSampler,
    half_log_snr,
    levels,
)


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
        t, t_next = half_log_snr(sigmas[i]), half_log_snr(sigmas[i + 1])
        h = t_next - t
        estimate = denoised
        if old is not None and sigmas[i + 1] != 0:
            r = (t - half_log_snr(sigmas[i - 1])) / h
            estimate = (1 + 1 / (2 * r)) * denoised - (1 / (2 * r)) * old
        decay = t_next.neg().exp() / t.neg().exp()
        return {"x": decay * x - (-h).expm1() * estimate, "old_denoised": denoised}


class Dpmpp2MCfgPp(UncondSampler):
    """DPM-Solver++(2M) with CFG++: the step starts from x - U, ends at D, and extrapolates from the last U.

    state adds `old_uncond`: the unguided estimate before, None at the start.
    """

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state."""
        return {**super().begin(x, sigmas, seed, options), "old_uncond": None}

    def advance_with(self, state: SamplerState, denoised: Tensor, uncond: Tensor) -> SamplerState:
        """Return the latent one level down, and the unguided estimate as history."""
        x, sigmas, i, old = state["x"], levels(state), state["step"], state["old_uncond"]
        t = half_log_snr(sigmas[i])
        h = half_log_snr(sigmas[i + 1]) - t
        mix = -torch.exp(-h) * uncond
        if old is not None and sigmas[i + 1] != 0:
            r = (t - half_log_snr(sigmas[i - 1])) / h
            mix = mix - torch.expm1(-h) * (1 / (2 * r)) * (denoised - old)
        return {**state, "x": denoised + mix + torch.exp(-h) * x, "old_uncond": uncond, "step": i + 1}


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
        h = half_log_snr(sigmas[i + 1]) - half_log_snr(sigmas[i])
        alpha = sigmas[i + 1] * half_log_snr(sigmas[i + 1]).exp()
        x = sigmas[i + 1] / sigmas[i] * (-h * eta).exp() * x + alpha * (-h * (eta + 1)).expm1().neg() * denoised
        if state["old_denoised"] is not None:
            r = (half_log_snr(sigmas[i]) - half_log_snr(sigmas[i - 1])) / h
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


class Dpmpp3MSde(OneEvaluationSampler):
    """SDE-DPM-Solver++ of order 3 with Brownian noise. Options: eta (1), s_noise (1).

    The weights of the divided differences are the phi functions of exponential integrators (Hochbruck and
    Ostermann 2010, equation 2.10). on_cpu: as in Dpmpp2MSde. state adds `olds`: up to two estimates before,
    newest first, and `noise`.
    """

    def __init__(self, on_cpu: bool = True) -> None:
        self.on_cpu = on_cpu

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state, with what repeats the Brownian motion."""
        return {
            **super().begin(x, sigmas, seed, options),
            "eta": float(options.get("eta", 1.0)),
            "s_noise": float(options.get("s_noise", 1.0)),
            "olds": [],
            "noise": begin_brownian(x, sigmas, seed, self.on_cpu),
        }

    def step(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Return the latent one level down, and the evaluations as history."""
        x, sigmas, i, eta = state["x"], levels(state), state["step"], state["eta"]
        estimates = [denoised, *state["olds"]]
        if sigmas[i + 1] == 0:
            return {"x": denoised, "olds": estimates[:2]}
        lambda_t = half_log_snr(sigmas[i + 1])
        h = lambda_t - half_log_snr(sigmas[i])
        h_eta = h * (eta + 1)
        alpha = sigmas[i + 1] * lambda_t.exp()
        x = sigmas[i + 1] / sigmas[i] * (-h * eta).exp() * x + alpha * (-h_eta).expm1().neg() * denoised
        for weight, difference in zip(_phis(h_eta), _differences(sigmas, i, estimates), strict=False):
            x = x + alpha * weight * difference
        if eta > 0 and state["s_noise"] > 0:
            noise = brownian_increment(state["noise"], sigmas[i], sigmas[i + 1], x)
            x = x + noise * sigmas[i + 1] * (-2 * h * eta).expm1().neg().sqrt() * state["s_noise"]
        return {"x": x, "olds": estimates[:2]}


def _phis(h: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of the first and the second difference: phi_2 and -phi_3, of h."""
    phi_2 = h.neg().expm1() / h + 1
    return phi_2, -(phi_2 / h - 0.5)


def _differences(sigmas: Tensor, i: int, estimates: Sequence[Tensor]) -> list[Tensor]:
    """Return the first and the second difference of the estimates by lambda, in units of the step from level i.

    estimates: up to three, newest first; n of them give n - 1 differences.
    """
    if len(estimates) == 1:
        return []
    lambdas = [half_log_snr(sigmas[i + 1 - k]) for k in range(len(estimates) + 1)]
    h, *before = (later - earlier for later, earlier in pairwise(lambdas))
    ratios = [each / h for each in before]
    slopes = [(newer - older) / r for (newer, older), r in zip(pairwise(estimates), ratios, strict=True)]
    if len(slopes) == 1:
        return slopes
    (r_0, r_1), bend = ratios, slopes[0] - slopes[1]
    return [slopes[0] + bend * r_0 / (r_0 + r_1), bend / (r_0 + r_1)]
