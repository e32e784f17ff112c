"""Walk with linear multistep methods in sigma: Adams-Bashforth weights over the slopes of the last steps.

LMS: the weights are integrals of Lagrange polynomials over the real levels (Hairer, Norsett, Wanner 1993,
Solving Ordinary Differential Equations I, section III.5). iPNDM: the weights of equal steps (Zhang and Chen
2023, arXiv 2204.13902, Improved PNDM), or with the ratios of unequal ones. All have order up to 4,
and rise to it during the first steps.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.integrate
from numpy.typing import NDArray
from torch import Tensor

from comfyserverless.sampling.samplers.base import (
    OneEvaluationSampler,
    SamplerOptions,
    SamplerState,
    derivative,
    levels,
)

MAX_ORDER = 4

_EQUAL_STEPS = {1: ((1,), 1), 2: ((3, -1), 2), 3: ((23, -16, 5), 12), 4: ((55, -59, 37, -9), 24)}
"""Adams-Bashforth weights by order, newest slope first, and what they are divided by."""


class _Multistep(OneEvaluationSampler):
    """Step with a weighted sum of the newest slopes; level 0 takes the estimate itself.

    state adds `slopes`: up to order - 1 slopes of the steps before, newest first. Option: order (MAX_ORDER).
    """

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state."""
        order = int(options.get("order", MAX_ORDER))
        return {**super().begin(x, sigmas, seed, options), "slopes": [], "order": order}

    def step(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Return the latent one level down, and the slopes."""
        x, sigmas, i = state["x"], levels(state), state["step"]
        slopes = [derivative(x, sigmas[i], denoised), *state["slopes"]]
        x = denoised if sigmas[i + 1] == 0 else self.combine(x, sigmas, i, slopes)
        return {"x": x, "slopes": slopes[: state["order"] - 1]}

    @abstractmethod
    def combine(self, x: Tensor, sigmas: Tensor, i: int, slopes: Sequence[Tensor]) -> Tensor:
        """Return x one level down from level i; slopes: up to MAX_ORDER, newest first."""


def _sum(weights: Sequence[float | Tensor], slopes: Sequence[Tensor]) -> Tensor:
    total = weights[0] * slopes[0]
    for weight, slope in zip(weights[1:], slopes[1:], strict=True):
        total = total + weight * slope
    return total


class Lms(_Multistep):
    """Integrate the polynomial through the newest slopes from level to level, whatever their distances."""

    def combine(self, x: Tensor, sigmas: Tensor, i: int, slopes: Sequence[Tensor]) -> Tensor:
        """Return x one level down."""
        at = sigmas.numpy()
        return x + _sum([_lagrange_integral(at, i, len(slopes), j) for j in range(len(slopes))], slopes)


def _lagrange_integral(at: NDArray[np.floating[Any]], i: int, order: int, j: int) -> float:
    """Return the integral, from at[i] to at[i + 1], of the j-th basis polynomial through at[i] and before."""

    def basis(tau: float) -> float:
        product: float = 1.0
        for k in range(order):
            if k != j:
                product *= (tau - at[i - k]) / (at[i - j] - at[i - k])
        return product

    return float(scipy.integrate.quad(basis, at[i], at[i + 1], epsrel=1e-4)[0])


class Ipndm(_Multistep):
    """iPNDM: the weights of equal steps."""

    def combine(self, x: Tensor, sigmas: Tensor, i: int, slopes: Sequence[Tensor]) -> Tensor:
        """Return x one level down."""
        weights, divisor = _EQUAL_STEPS[len(slopes)]
        h = sigmas[i + 1] - sigmas[i]
        if divisor == 1:
            return x + h * slopes[0]
        return x + h * _sum(weights, slopes) / divisor


class IpndmV(_Multistep):
    """iPNDM with weights for unequal steps, as the zju-pi diff-sampler has them.

    The weights of order 3 there are not those of the exact integral: their last factor multiplies a part only.
    Recorded images depend on it, so it stays.
    """

    def combine(self, x: Tensor, sigmas: Tensor, i: int, slopes: Sequence[Tensor]) -> Tensor:
        """Return x one level down."""
        steps = [sigmas[i + 1 - k] - sigmas[i - k] for k in range(len(slopes))]
        if len(slopes) == 1:
            return x + steps[0] * slopes[0]
        return x + steps[0] * _sum(_unequal_weights(steps), slopes)


def _unequal_weights(steps: Sequence[Tensor]) -> list[Tensor]:
    """Return the weights by step sizes h_n, h_(n-1) ..., the newest first; 2 to 4 of them."""
    h, h_1 = steps[0], steps[1]
    ratio = h / h_1
    weights = [(2 + ratio) / 2, -ratio / 2]
    if len(steps) == 2:
        return weights
    h_2 = steps[2]
    third = (1 - h / (3 * (h + h_1)) * (h * (h + h_1)) / (h_1 * (h_1 + h_2))) / 2
    back = h_1 / h_2
    if len(steps) == 3:
        return [weights[0] + third, weights[1] - (1 + back) * third, third * h_1 / h_2]
    h_3 = steps[3]
    fourth = ((1 - h / (3 * (h + h_1))) / 2 + (1 - h / (2 * (h + h_1))) * h / (6 * (h + h_1 + h_2))) * (
        h * (h + h_1) * (h + h_1 + h_2)
    )
    fourth = fourth / (h_1 * (h_1 + h_2) * (h_1 + h_2 + h_3))
    far = h_1 * (h_1 + h_2) / (h_2 * (h_2 + h_3))
    return [
        weights[0] + third + fourth,
        weights[1] - (1 + back) * third - (1 + back + far) * fourth,
        third * h_1 / h_2 + (back + far * (1 + h_2 / h_3)) * fourth,
        -fourth * far * h_1 / h_2,
    ]
