"""Walk with DPM-Solver from the first level to the last above 0 in steps as long as their error allows.

Lu et al. 2022, DPM-Solver (arXiv 2206.00927), appendix C. Of the schedule it takes the ends only; the latent
keeps the noise of the last level above 0.
lambda is written t, as time. A step goes from t to t + h; `eps` is the noise that an evaluation implies.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.sampling.samplers.base import (
    NO_OPTIONS,
    Evaluation,
    SamplerOptions,
    SamplerState,
    ask,
    finish,
    level,
    level_at,
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

TIME_TOLERANCE = 1e-5
"""Distance to the end, in lambda, at which the walk is over."""

_CONTROL = {"rtol": 0.05, "atol": 0.0078, "h_init": 0.05, "accept_safety": 0.81}
_CONTROL |= {"pcoeff": 0.0, "icoeff": 1.0, "dcoeff": 0.0}
"""Options of the step-size control, and their defaults."""

_LEAST_ERROR = 1e-8
_MAX_ATTEMPTS = 10_000


class DpmAdaptive(DpmSolver):
    """DPM-Solver-12 or -23: steps as long as the difference of two orders allows.

    Options: order (3; or 2), rtol (0.05), atol (0.0078), h_init (0.05), pcoeff (0), icoeff (1), dcoeff (0),
    accept_safety (0.81), beside those of noise. A step is one attempt; a refused one leaves the latent. state
    adds `t`: the time reached, `h`: the next step's length, `x_low`: the lower order's last accepted latent,
    `errors`: up to three inverse errors, newest first, and the options as `control`.
    """

    is_dynamic: ClassVar[bool] = True

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state."""
        control = {name: float(options.get(name, default)) for name, default in _CONTROL.items()}
        return {
            **super().begin(x, sigmas, seed, options),
            "order": int(options.get("order", 3)),
            "t": float(ends(sigmas)[0]),
            "h": abs(control["h_init"]),
            "x_low": x,
            "errors": [],
            "control": control,
        }

    def query(self, state: SamplerState) -> tuple[Tensor, Tensor]:
        """Ask at the start of a step first, then where the last stage wants to."""
        if state["asked"] is None:
            return state["x"], level_at(level(state, state["t"]))
        return super().query(state)

    def advance(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Ask at the next stage, or end the attempt. Raises PromptError for a walk that comes to no end."""
        t, t_end, order = level(state, state["t"]), level(state, state["t_end"]), state["order"]
        t_next = torch.minimum(t_end, t + state["h"])
        if t_next == t or state["step"] >= _MAX_ATTEMPTS:
            raise PromptError(
                f"dpm_adaptive comes to no end: after {state['step']} steps the next is {state['h']:g} long;"
                " raise rtol, atol or h_init, or lower accept_safety"
            )
        t_down, sigma_up = step_down(t, t_next, t_end, state["eta"])
        span, noises = Span(state["x"], t, t_down), self._noises(state, denoised)
        if len(noises) < order:
            return ask(state, *span.stage(noises, SHARES[order]), noises=noises)
        low, high = both_orders(span, noises)
        accepted, changes = _control_step(state, _relative_error(state, low, high))
        if not accepted:
            return finish(state, state["x"], **changes)
        changes |= {**add_noise(state, high, sigma_up), "x_low": low, "t": float(t_next)}
        return finish(state, **changes)

    def is_done(self, state: SamplerState) -> bool:
        """Tell whether the end is reached."""
        return not bool(level(state, state["t"]) < level(state, state["t_end"]) - TIME_TOLERANCE)

    def upcoming(self, state: SamplerState) -> Evaluation | None:
        """Return the next evaluation: each attempt has as many as the order."""
        if self.is_done(state):
            return None
        return Evaluation(state["step"], float(self.query(state)[1]), state["stage"] == state["order"] - 1)

    def evaluations(self, sigmas: Tensor, options: SamplerOptions = NO_OPTIONS) -> list[Evaluation]:
        """List the first evaluation; none where the walk has no length."""
        first = self.begin(sigmas[:1], sigmas, 0, options)
        upcoming = self.upcoming(first)
        return [] if upcoming is None else [upcoming]

    def inner_levels(self, sigmas: Tensor, step: int, options: SamplerOptions) -> list[Tensor]:
        """Return nothing: the levels are not known before the walk."""
        return []


def _relative_error(state: SamplerState, low: Tensor, high: Tensor) -> float:
    """Return the difference of the orders over the tolerance: a mean square over the latent (appendix C).

    Raises PromptError where the model gave values that are not finite: no step is short enough for them.
    """
    control = state["control"]
    largest = control["rtol"] * torch.maximum(low.abs(), state["x_low"].abs())
    delta = largest.clamp(min=control["atol"])
    error = float(torch.linalg.norm((low - high) / delta) / low.numel() ** 0.5)
    if not math.isfinite(error):
        raise PromptError("dpm_adaptive cannot choose a step: the model returned values that are not finite")
    return error


def _control_step(state: SamplerState, error: float) -> tuple[bool, SamplerState]:
    """Return whether the attempt counts, and the step length and errors for the next one.

    A PID controller of the step size (Soederlind 2003, Digital filters in adaptive time-stepping), with its
    smooth limiter 1 + arctan(factor - 1).
    """
    control, order = state["control"], 1.5 if state["eta"] else state["order"]
    inverse = 1 / (error + _LEAST_ERROR)
    errors = [inverse, *state["errors"][1:]] if state["errors"] else [inverse] * 3
    p, i, d = control["pcoeff"], control["icoeff"], control["dcoeff"]
    exponents = ((p + i + d) / order, -(p + 2 * d) / order, d / order)
    factor = 1 + math.atan(math.prod(e**b for e, b in zip(errors, exponents, strict=True)) - 1)
    accepted = factor >= control["accept_safety"]
    if accepted:
        errors = [errors[0], errors[0], errors[1]]
    return accepted, {"h": state["h"] * factor, "errors": errors}
