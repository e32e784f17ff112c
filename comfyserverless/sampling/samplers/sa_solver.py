"""Walk with SA-Solver, a stochastic Adams predictor and corrector for data prediction.

Xue et al. 2023, SA-Solver (arXiv 2309.05019): the variance-controlled SDE of section 3 with noise scale tau,
the predictor of equation 14, the corrector of equation 17, and algorithm 1. PECE evaluates once more after
the corrector (appendix). Weights are integrals of Lagrange polynomials against e^((1 + tau^2) lambda).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor

from comfyserverless.sampling.noise import draw_step_noise
from comfyserverless.sampling.samplers.base import (
    SamplerOptions,
    SamplerState,
    StagedSampler,
    ask,
    begin_noise,
    finish,
    half_log_snr,
    levels,
)

PREDICTOR_ORDER, CORRECTOR_ORDER = 3, 4

CLOSE_NODES = 0.01
"""Distance in lambda below which weights are solved for in float64: that of hundreds of steps."""


class SaSolver(StagedSampler):
    """SA-Solver with tau = eta between two levels and 0 outside of them. Options beside eta and s_noise:

    start_sigma, end_sigma (none: no noise): the levels between which noise is added; predictor_order (3),
    corrector_order (4); simple_order_2 (false): the simpler weights of appendix D for two nodes. use_pece:
    evaluate again at the corrected latent.

    `x` is the predicted latent. state adds `models`: the latest estimates, newest last; `x_base`: the corrected
    latent one level up; `tau` and `added`: the noise scale of the last predictor and the noise that it added.
    """

    percent_options: ClassVar[Mapping[str, float]] = MappingProxyType({"start_sigma": 0.2, "end_sigma": 0.8})

    def __init__(self, use_pece: bool = False) -> None:
        self.use_pece = use_pece

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state."""
        return {
            **super().begin(x, sigmas, seed, options),
            **begin_noise(x, seed, options),
            "start_sigma": float(options.get("start_sigma", -1.0)),
            "end_sigma": float(options.get("end_sigma", 0.0)),
            "predictor_order": int(options.get("predictor_order", PREDICTOR_ORDER)),
            "corrector_order": int(options.get("corrector_order", CORRECTOR_ORDER)),
            "is_simple": bool(options.get("simple_order_2", False)),
            "models": [],
            "x_base": None,
            "tau": 0.0,
            "added": None,
        }

    def advance(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Correct the latent with the estimate (equation 17), then predict the next (equation 14)."""
        if state["stage"] == 1:
            return self._predict(state, state["kept"]["corrected"], [*state["models"][:-1], denoised])
        longest = max(state["predictor_order"], state["corrector_order"])
        models = [*state["models"], denoised][-longest:]
        order = self._corrector_order(state, len(models))
        if order == 0:
            return self._predict(state, state["x"], models)
        corrected = self._correct(state, models[-order:])
        if self.use_pece:
            sigma = levels(state)[state["step"]]
            return ask({**state, "models": models}, corrected, sigma, corrected=corrected)
        return self._predict(state, corrected, models)

    def inner_levels(self, sigmas: Tensor, step: int, options: SamplerOptions) -> list[Tensor]:
        """Return the level again where PECE evaluates after a corrector."""
        return [sigmas[step]] if self.use_pece and step > 0 else []

    def _corrector_order(self, state: SamplerState, known: int) -> int:
        """Return the order of the corrector at the level that the walk stands at; 0 leaves the latent."""
        sigmas, i = state["sigmas"], state["step"]
        if i == 0 or (sigmas[i + 1] == 0 and not self.use_pece):
            return 0
        order: int = min(state["corrector_order"], known)
        return min(order, len(sigmas) - 1 - i) if sigmas[-1] == 0 else order

    def _correct(self, state: SamplerState, models: list[Tensor]) -> Tensor:
        """Return the latent at this level, from the one a level up and the estimates up to here."""
        sigmas, i = levels(state), state["step"]
        lambdas = half_log_snr(sigmas)
        step = _Step(sigmas[i - 1], sigmas[i], lambdas[i - 1], lambdas[i], state["tau"], state["is_simple"])
        x = step.move(state["x_base"], models, lambdas[i + 1 - len(models) : i + 1])
        return x if state["added"] is None else x + state["added"]

    def _predict(self, state: SamplerState, x: Tensor, models: list[Tensor]) -> SamplerState:
        """Return the state one level down, from the corrected latent and the estimates up to here."""
        sigmas, i = levels(state), state["step"]
        if sigmas[i + 1] == 0:
            return finish(state, models[-1], models=models, x_base=x)
        order = min(state["predictor_order"], len(models))
        if sigmas[-1] == 0:
            order = min(order, len(sigmas) - 2 - i)
        lambdas = half_log_snr(sigmas)
        tau = self._tau(state, float(sigmas[i + 1]))
        step = _Step(sigmas[i], sigmas[i + 1], lambdas[i], lambdas[i + 1], tau, state["is_simple"])
        x_next = step.move(x, models[-order:], lambdas[i + 1 - order : i + 1])
        changes: SamplerState = {"models": models, "x_base": x, "tau": tau, "added": None}
        if tau > 0 and state["s_noise"] > 0:
            noise, changes["noise"] = draw_step_noise(state["noise"], x)
            h = lambdas[i + 1] - lambdas[i]
            scale = (-2 * tau**2 * h).expm1().neg().sqrt()
            changes["added"] = noise * sigmas[i + 1] * scale * state["s_noise"]
            x_next = x_next + changes["added"]
        return finish(state, x_next, **changes)

    def _tau(self, state: SamplerState, sigma: float) -> float:
        """Return the noise scale at a level: a piecewise constant function, as in section 6 of the paper."""
        eta: float = state["eta"]
        return eta if state["start_sigma"] >= sigma >= state["end_sigma"] else 0.0


@dataclass(frozen=True, slots=True)
class _Step:
    """One step from (sigma_s, lambda_s) to (sigma_t, lambda_t) with noise scale tau.

    is_simple: two nodes have weights that are right to the order of the step only.
    """

    sigma_s: Tensor
    sigma_t: Tensor
    lambda_s: Tensor
    lambda_t: Tensor
    tau: float
    is_simple: bool

    def move(self, x: Tensor, models: list[Tensor], at: Tensor) -> Tensor:
        """Return x at sigma_t without noise; models: estimates at the lambdas `at`, oldest first."""
        alpha_t = self.sigma_t * self.lambda_t.exp()
        is_simple = self.is_simple and len(at) == 2
        weights = alpha_t * (self._simple_weights(at) if is_simple else self._integrals(at))
        combined = torch.tensordot(torch.stack(models, dim=1), weights.to(x), dims=([1], [0]))
        h = self.lambda_t - self.lambda_s
        moved: Tensor = self.sigma_t / self.sigma_s * (-(self.tau**2) * h).exp() * x + combined
        return moved

    def _simple_weights(self, at: Tensor) -> Tensor:
        """Return the weights of two nodes, older first (paper, appendix D, implementation details)."""
        c, h = 1 + self.tau**2, self.lambda_t - self.lambda_s
        whole = -(-h * c).expm1()
        if at[-1] == self.lambda_t:  # a corrector, which knows the estimate at the end of the step
            newer = 0.5 * c * h
            return torch.stack([whole - newer, newer])
        older = 0.5 * c * h**2 / (at[-2] - self.lambda_s)
        return torch.stack([older, whole - older])

    def _integrals(self, at: Tensor) -> Tensor:
        """Return the weight of each node: V^T w = moments makes w exact for polynomials through the nodes."""
        # Recorded images depend on the bits of float32. It cannot solve for nodes that are close together.
        is_close = len(at) > 1 and float(at.diff().min()) < CLOSE_NODES
        nodes = at.double() if is_close else at
        vandermonde = torch.vander(nodes, len(at), increasing=True).T
        weights: Tensor = torch.linalg.solve(vandermonde, self._moments(len(at), nodes.dtype))
        return weights.to(at)

    def _moments(self, count: int, dtype: torch.dtype) -> Tensor:
        """Return c e^(-c t) times the integral of e^(c l) l^p over l from s to t, with c = 1 + tau^2, by p.

        By parts, to the end: the sum over k <= p of (-1)^(p - k) p! / (k! c^(p - k)) (t^k - s^k e^(-c h)).
        """
        s, t, c = self.lambda_s.to(dtype), self.lambda_t.to(dtype), 1 + self.tau**2
        powers = torch.arange(count, dtype=s.dtype)
        ends = t**powers - s**powers * (-c * (t - s)).exp()
        depth = powers.unsqueeze(1) - powers.unsqueeze(0)
        log_factorial = (powers + 1).lgamma()
        log_ratio = log_factorial.unsqueeze(1) - log_factorial.unsqueeze(0) - depth * math.log(c)
        signs = torch.where(depth % 2 == 0, 1.0, -1.0).to(s)
        return (log_ratio.exp() * signs).tril() @ ends
