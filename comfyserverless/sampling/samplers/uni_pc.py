"""Walk with the unified predictor-corrector UniPC in data prediction, multistep, of order up to 3.

Zhao et al. 2023, UniPC (arXiv 2302.04867), section 3: the corrector UniC is algorithm 1, the predictor UniP
algorithm 2, with B(h) = h (bh1) or B(h) = e^h - 1 (bh2); with data prediction h changes its sign. The solver
works in the variance-preserving view, alpha_t^2 + sigma_t^2 = 1, where a level sigma means sigma_t / alpha_t. A
level of 0 has no lambda, so the walk ends just above it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from comfyserverless.sampling.samplers.base import Sampler, SamplerOptions, SamplerState, levels

LAST_LEVEL = 0.001
"""The level that stands for 0."""

MAX_ORDER = 3


def _log_alpha(level: Tensor) -> Tensor:
    return 0.5 * torch.log(1 / ((level * level) + 1))


def _sigma_t(level: Tensor) -> Tensor:
    return torch.sqrt(1.0 - torch.exp(2.0 * _log_alpha(level)))


def _lambda(level: Tensor) -> Tensor:
    log_alpha = _log_alpha(level)
    return log_alpha - 0.5 * torch.log(1.0 - torch.exp(2.0 * log_alpha))


@dataclass(frozen=True, slots=True)
class _Update:
    """What predictor and corrector of one step share.

    base: the first-order step; scale: alpha_t B(h); slopes: D_m / r_m, order - 1 of x's shape; matrix [order,
    order] and vector [order]: R_p(h) and the right side of the order conditions R_p(h) a = b.
    """

    base: Tensor
    scale: Tensor
    slopes: list[Tensor]
    matrix: Tensor
    vector: Tensor

    def predict(self) -> Tensor:
        """Return UniP's estimate at the next level."""
        if not self.slopes:
            return self.base
        order = len(self.slopes) + 1
        weights = (
            torch.tensor([0.5])
            if order == 2  # for one slope 1/2 keeps the order and needs no system, the paper says
            else torch.linalg.solve(self.matrix[:-1, :-1], self.vector[:-1])
        )
        return self.base - self.scale * _weighted(self.slopes, weights)

    def correct(self, slope_here: Tensor) -> Tensor:
        """Return UniC's estimate, with the slope that the new evaluation gives."""
        order = len(self.slopes) + 1
        weights = torch.tensor([0.5]) if order == 1 else torch.linalg.solve(self.matrix, self.vector)
        if not self.slopes:
            return self.base - self.scale * (weights[-1] * slope_here)
        return self.base - self.scale * (_weighted(self.slopes, weights[:-1]) + weights[-1] * slope_here)


def _weighted(slopes: list[Tensor], weights: Tensor) -> Tensor:
    stacked = torch.stack(slopes, dim=1)
    combined: Tensor = torch.tensordot(stacked, weights.to(stacked), dims=([1], [0]))
    return combined


class UniPC(Sampler):
    """UniPC with one evaluation per step: it corrects the latent it was asked at, then predicts the next.

    state adds `levels`: sigmas with the last above 0; `order`: the highest order used; `models`: up to `order`
    latest data predictions; `x_base`: the corrected latent one step back, None at the start. `x` is
    variance-preserving.
    """

    discards_penultimate_sigma = True
    ends_above_zero = True

    def __init__(self, variant: Literal["bh1", "bh2"]) -> None:
        self.variant = variant

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state. A walk of a single step is of order 1."""
        first = super().begin(x / torch.sqrt(1.0 + sigmas[0] ** 2.0), sigmas, seed, options)
        end = [LAST_LEVEL] if sigmas[-1] == 0 else first["sigmas"][-1:]
        return {
            **first,
            "levels": [*first["sigmas"][:-1], *end],
            "order": max(1, min(MAX_ORDER, len(sigmas) - 2)),
            "models": [],
            "x_base": None,
        }

    def query(self, state: SamplerState) -> tuple[Tensor, Tensor]:
        """Ask at the predicted latent, in the variance-exploding view."""
        level = levels(state, "levels")[state["step"]]
        return state["x"] * ((level**2 + 1.0) ** 0.5), level

    def advance(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Correct the latent with the new evaluation (UniC), then predict the next one (UniP)."""
        i, level = state["step"], levels(state, "levels")[state["step"]]
        x_in, _ = self.query(state)
        epsilon = (x_in - denoised) / level
        model = (state["x"] - _sigma_t(level) * epsilon) / torch.exp(_log_alpha(level))
        x = state["x"]
        if i > 0:
            x = self._update(state, state["x_base"], state["models"], i).correct(model - state["models"][-1])
        models = [*state["models"], model][-state["order"] :]
        predicted = self._update(state, x, models, i + 1).predict()
        return {**state, "x": predicted, "x_base": x, "models": models, "step": i + 1}

    def result(self, state: SamplerState) -> Tensor:
        """Return the latent in the variance-exploding view."""
        x: Tensor = state["x"]
        return x / torch.exp(_log_alpha(levels(state, "levels")[state["step"]]))

    def _update(self, state: SamplerState, x: Tensor, models: list[Tensor], target: int) -> _Update:
        """Prepare the step to level `target`; models: evaluations at the levels before it, oldest first."""
        at, order = levels(state, "levels"), self._order(state, target)
        previous, level = at[target - 1], at[target]
        lambda_0 = _lambda(previous)
        h = _lambda(level) - lambda_0
        ratios = [(_lambda(at[target - 1 - m]) - lambda_0) / h for m in range(1, order)]
        slopes = [(models[-1 - m] - models[-1]) / ratios[m - 1] for m in range(1, order)]
        matrix, vector, scale = self._weights(h, ratios)
        alpha = torch.exp(_log_alpha(level))
        base = _sigma_t(level) / _sigma_t(previous) * x - alpha * torch.expm1(-h) * models[-1]
        return _Update(base, alpha * scale, slopes, matrix, vector)

    def _order(self, state: SamplerState, target: int) -> int:
        """Return the order of the step to `target`: it rises from 1 and falls to 1 at the end."""
        steps = len(state["levels"]) - 1
        order: int = state["order"]
        return target if target < order else min(order, steps + 1 - target)

    def _weights(self, h: Tensor, ratios: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return R_p, the right side of its order conditions, and B(h); with data prediction h is -h."""
        nodes = torch.tensor([*map(float, ratios), 1.0], dtype=h.dtype)
        minus_h = -h
        phi = torch.expm1(minus_h) / minus_h - 1
        scale = minus_h if self.variant == "bh1" else torch.expm1(minus_h)
        rows, entries, factorial = [], [], 1
        for m in range(1, len(nodes) + 1):
            rows.append(torch.pow(nodes, m - 1))
            entries.append(float(phi * factorial / scale))
            factorial *= m + 1
            phi = phi / minus_h - 1 / factorial
        return torch.stack(rows), torch.tensor(entries, dtype=h.dtype), scale
