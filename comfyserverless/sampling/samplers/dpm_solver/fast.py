"""Walk with DPM-Solver-fast from the first level to the last above 0: steps of equal length in lambda.

Lu et al. 2022, DPM-Solver (arXiv 2206.00927), section 3.4. Of the schedule it takes the ends and the number of
steps only; the latent keeps the noise of the last level above 0.
lambda is written t, as time. A step goes from t to t + h; `eps` is the noise that an evaluation implies.
"""

from __future__ import annotations

import torch
from torch import Tensor

from comfyserverless.sampling.samplers.base import (
    NO_OPTIONS,
    Evaluation,
    SamplerOptions,
    SamplerState,
    ask,
    finish,
    level,
    level_at,
    list_stages,
)
from comfyserverless.sampling.samplers.dpm_solver.steps import (
    SHARES,
    DpmSolver,
    Span,
    add_noise,
    both_orders,
    ends,
    step_down,
)


class DpmFast(DpmSolver):
    """DPM-Solver-fast: steps of order 3 of equal length in lambda, and lower ones at the end.

    As many evaluations as the schedule has steps. state adds `times`: of the solver's levels.
    """

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state."""
        return {**super().begin(x, sigmas, seed, options), "times": _fast_times(sigmas).tolist()}

    def query(self, state: SamplerState) -> tuple[Tensor, Tensor]:
        """Ask at the start of a step first, then where the last stage wants to."""
        if state["asked"] is None:
            return state["x"], level_at(level(state, state["times"][state["step"]]))
        return super().query(state)

    def advance(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Ask at the next stage, or end the step."""
        step, t_end = state["step"], level(state, state["t_end"])
        t, t_next = (level(state, state["times"][i]) for i in (step, step + 1))
        t_down, sigma_up = step_down(t, t_next, t_end, state["eta"])
        span, noises = Span(state["x"], t, t_down), self._noises(state, denoised)
        order = _fast_orders(len(state["sigmas"]) - 1)[step]
        if len(noises) < order:
            return ask(state, *span.stage(noises, SHARES[order]), noises=noises)
        x = span.first(noises[0]) if order == 1 else both_orders(span, noises)[1]
        return finish(state, **add_noise(state, x, sigma_up))

    def is_done(self, state: SamplerState) -> bool:
        """Tell whether the last of the solver's own levels is reached."""
        return int(state["step"]) >= len(state["times"]) - 1

    def evaluations(self, sigmas: Tensor, options: SamplerOptions = NO_OPTIONS) -> list[Evaluation]:
        """List as many evaluations per step as its order."""
        starts = _fast_times(sigmas)[:-1]
        return list_stages(
            [[level_at(t), *self.inner_levels(sigmas, step, options)] for step, t in enumerate(starts)]
        )

    def inner_levels(self, sigmas: Tensor, step: int, options: SamplerOptions) -> list[Tensor]:
        """Return the levels inside one of the solver's own steps."""
        times, order = _fast_times(sigmas), _fast_orders(len(sigmas) - 1)[step]
        t_down, _ = step_down(times[step], times[step + 1], ends(sigmas)[1], float(options.get("eta", 0.0)))
        span = Span(times, times[step], t_down)
        return [level_at(span.inner(share)) for share in SHARES[order]]


def _fast_orders(evaluations: int) -> list[int]:
    """Return the orders of the steps, whose sum is the number of evaluations."""
    rest = evaluations % 3
    if rest == 0:
        return [3] * (evaluations // 3 - 1) + [2, 1]
    return [3] * (evaluations // 3) + [rest]


def _fast_times(sigmas: Tensor) -> Tensor:
    """Return the times of the solver's levels, as many as it has steps and one more."""
    start, end = ends(sigmas)
    return torch.linspace(float(start), float(end), len(_fast_orders(len(sigmas) - 1)) + 1, dtype=sigmas.dtype)
