"""Walk with tAB-DEIS: Adams-Bashforth steps in the time of the variance-preserving SDE.

Zhang and Chen 2023, Fast Sampling of Diffusion Models with Exponential Integrator (arXiv 2204.13902): equation
14 for the step and 15 for its weights, integrals of Lagrange polynomials against the SDE's weight. The time is
that of a linear beta schedule (Song et al. 2021, appendix C) that spans the levels of Karras et al. 2022.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from comfyserverless.sampling.samplers.base import (
    OneEvaluationSampler,
    SamplerOptions,
    SamplerState,
    derivative,
    levels,
)

MAX_ORDER = 3
POINTS = 10000
"""Points of the sums that stand for the integrals."""

TIME_MIN, SIGMA_MIN, SIGMA_MAX = 1e-3, 0.002, 80.0
"""The levels at time TIME_MIN and at time 1."""

_LOG_MIN, _LOG_MAX = math.log(SIGMA_MIN**2 + 1), math.log(SIGMA_MAX**2 + 1)
BETA_SLOPE = 2 * (_LOG_MIN / TIME_MIN - _LOG_MAX) / (TIME_MIN - 1)
BETA_0 = _LOG_MAX - 0.5 * BETA_SLOPE
"""The schedule beta(t) = BETA_0 + BETA_SLOPE t, which has those levels."""


class Deis(OneEvaluationSampler):
    """tAB-DEIS of order up to 3; the step to level 0 is Euler's.

    state adds `slopes`: up to MAX_ORDER - 1 slopes of the steps before, newest first.
    """

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state."""
        return {**super().begin(x, sigmas, seed, options), "slopes": []}

    def step(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Return the latent one level down, and the slopes."""
        x, sigmas, i = state["x"], levels(state), state["step"]
        slopes = [derivative(x, sigmas[i], denoised), *state["slopes"]]
        if len(slopes) == 1 or sigmas[i + 1] <= 0:
            x = x + (sigmas[i + 1] - sigmas[i]) * slopes[0]
        else:
            for weight, slope in zip(_weights(sigmas, i, len(slopes)), slopes, strict=True):
                x = x + weight * slope
        return {"x": x, "slopes": slopes[: MAX_ORDER - 1]}


def _weights(sigmas: Tensor, i: int, order: int) -> list[Tensor]:
    """Return the weights of the slopes at levels i, i - 1 ... for the step to level i + 1."""
    times = _time(sigmas[i - order + 1 : i + 2]).flip(0)
    target, nodes = times[0], times[1:]
    taus = torch.linspace(float(nodes[0]), float(target), POINTS, dtype=sigmas.dtype)
    width = (target - nodes[0]) / POINTS
    weight = _sde_weight(taus)
    return [torch.sum(weight * _basis(taus, nodes, j)) * width for j in range(order)]


def _time(sigmas: Tensor) -> Tensor:
    """Return the times of levels: the inverse of sigma^2 + 1 = e^(beta_0 t + beta_slope t^2 / 2)."""
    return ((BETA_0**2 + 2 * BETA_SLOPE * (sigmas**2 + 1).log()).sqrt() - BETA_0) / BETA_SLOPE


def _sde_weight(taus: Tensor) -> Tensor:
    """Return -1/2 (d log alpha / dt) / sqrt(alpha (1 - alpha)): how the level rises with time."""
    alpha = torch.exp(-0.5 * taus**2 * BETA_SLOPE - taus * BETA_0)
    return 0.5 * (taus * BETA_SLOPE + BETA_0) / torch.sqrt(alpha * (1 - alpha))


def _basis(taus: Tensor, nodes: Tensor, j: int) -> Tensor:
    """Return the j-th Lagrange basis polynomial through the nodes, at each tau."""
    product = torch.ones_like(taus)
    for k in range(len(nodes)):
        if k != j:
            product = product * ((taus - nodes[k]) / (nodes[j] - nodes[k]))
    return product
