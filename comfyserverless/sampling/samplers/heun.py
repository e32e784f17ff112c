"""Walk with Heun's second-order steps: a tangent, corrected by the slope at its end, or by two slopes ahead."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from comfyserverless.sampling.samplers.base import (
    NO_OPTIONS,
    Evaluation,
    Sampler,
    SamplerOptions,
    SamplerState,
    StagedSampler,
    ask,
    derivative,
    finish,
    levels,
)


class Heun(Sampler):
    """Karras et al. 2022 (arXiv 2206.00364), algorithm 1; the step to level 0 stays first-order.

    state adds `stage`: 0 before the tangent's slope, 1 before the slope at its end; at stage 1 `x_2` is the end
    of the tangent and `d` its slope.
    """

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state."""
        return {**super().begin(x, sigmas, seed, options), "stage": 0}

    def query(self, state: SamplerState) -> tuple[Tensor, Tensor]:
        """Ask at the latent, then at the end of the tangent one level down."""
        if state["stage"] == 0:
            return state["x"], levels(state)[state["step"]]
        return state["x_2"], levels(state)[state["step"] + 1]

    def advance(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Draw the tangent (algorithm 1, lines 4-5), or correct it (lines 7-8)."""
        x, sigmas, i = state["x"], levels(state), state["step"]
        dt = sigmas[i + 1] - sigmas[i]
        core = {"sigmas": state["sigmas"]}
        if state["stage"] == 0:
            d = derivative(x, sigmas[i], denoised)
            x_2 = x + d * dt
            if sigmas[i + 1] == 0:
                return {**core, "x": x_2, "step": i + 1, "stage": 0}
            return {**core, "x": x, "step": i, "stage": 1, "x_2": x_2, "d": d}
        d_2 = derivative(state["x_2"], sigmas[i + 1], denoised)
        return {**core, "x": x + (state["d"] + d_2) / 2 * dt, "step": i + 1, "stage": 0}

    def evaluations(self, sigmas: Tensor, options: SamplerOptions = NO_OPTIONS) -> list[Evaluation]:
        """List two evaluations per step, one where the step ends at level 0."""
        listed: list[Evaluation] = []
        levels = sigmas.tolist()
        for step, (level, following) in enumerate(pairwise(levels)):
            listed.append(Evaluation(step, level, following == 0))
            if following != 0:
                listed.append(Evaluation(step, following, True))
        return listed


class HeunPP2(StagedSampler):
    """Heun++: walk two tangents ahead, and step with a mean of the three slopes seen on the way.

    Karras et al. 2022 (arXiv 2206.00364), algorithm 1, with slopes weighted by their noise level in place of
    1/2 and 1/2: of n slopes, the one at level s beyond the first has the weight s / (n sigma_0), and the first
    has the rest. Where the walk ends two levels below, two slopes are used, and one where it ends at the next.
    """

    def advance(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Take the next tangent, or the step with all slopes."""
        x, sigmas, i, stage = state["x"], levels(state), state["step"], state["stage"]
        x_asked, sigma = self.query(state)
        d = derivative(x_asked, sigma, denoised)
        slopes = [*state["kept"].get("slopes", []), d]
        if len(slopes) < self._slopes(sigmas, i):
            x_ahead = x_asked + d * (sigmas[i + stage + 1] - sigma)
            return ask(state, x_ahead, sigmas[i + stage + 1], slopes=slopes)
        return finish(state, x + self._mean(sigmas, i, slopes) * (sigmas[i + 1] - sigmas[i]))

    def inner_levels(self, sigmas: Tensor, step: int, options: SamplerOptions) -> list[Tensor]:
        """Return up to two following levels."""
        return list(sigmas[step + 1 : step + self._slopes(sigmas, step)])

    def _slopes(self, sigmas: Tensor, step: int) -> int:
        """Return how many slopes a step uses."""
        end = sigmas[-1]
        if sigmas[step + 1] == end:
            return 1
        return 2 if sigmas[step + 2] == end else 3

    def _mean(self, sigmas: Tensor, step: int, slopes: list[Tensor]) -> Tensor:
        weights = [sigmas[step + n] / (len(slopes) * sigmas[0]) for n in range(1, len(slopes))]
        rest = torch.ones_like(sigmas[0])
        for weight in weights:
            rest = rest - weight
        mean = slopes[0] * rest if weights else slopes[0]
        for weight, slope in zip(weights, slopes[1:], strict=True):
            mean = mean + weight * slope
        return mean
