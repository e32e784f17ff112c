"""Walk with Heun's second-order steps: a tangent, corrected by the slope at its end."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor

from comfyserverless.sampling.samplers.base import (
    Evaluation,
    Sampler,
    SamplerOptions,
    SamplerState,
    derivative,
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

    def evaluations(self, sigmas: Tensor) -> list[Evaluation]:
        """List two evaluations per step, one where the step ends at level 0."""
        listed: list[Evaluation] = []
        levels = sigmas.tolist()
        for step, (level, following) in enumerate(pairwise(levels)):
            listed.append(Evaluation(step, level, following == 0))
            if following != 0:
                listed.append(Evaluation(step, following, True))
        return listed
