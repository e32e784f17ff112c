"""Walk with DPM-Solver from the first level to the last above 0, in steps of its own: fast and adaptive.

Lu et al. 2022, DPM-Solver (arXiv 2206.00927), in noise prediction: algorithm 1 (order 2, with r_1), algorithm 2
(order 3), section 3.4 for the orders of DPM-Solver-fast, and appendix C for the adaptive step. Both take from
the schedule its ends and its number of steps only. The latent keeps the noise of the last level above 0.

lambda is written t, as time. A step goes from t to t + h; `eps` is the noise that an evaluation implies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.sampling.noise import draw_step_noise
from comfyserverless.sampling.samplers.base import (
    NO_OPTIONS,
    Evaluation,
    SamplerOptions,
    SamplerState,
    StagedSampler,
    ancestral_levels,
    ask,
    begin_noise,
    derivative,
    finish,
    half_log_snr,
    level,
    level_at,
    list_stages,
)

TIME_TOLERANCE = 1e-5
"""Distance to the end, in lambda, at which the adaptive walk is over."""

_SHARES: tuple[tuple[float, ...], ...] = ((), (), (1 / 2,), (1 / 3, 2 / 3))
"""Where a step of each order evaluates beyond its start, as shares of the step."""


@dataclass(frozen=True, slots=True)
class _Span:
    """A step of the solver from x at time t to t_next."""

    x: Tensor
    t: Tensor
    t_next: Tensor

    @property
    def h(self) -> Tensor:
        """Return the length of the step."""
        return self.t_next - self.t

    def inner(self, share: float) -> Tensor:
        """Return the time at a share of the step."""
        return self.t + share * self.h

    def first(self, eps: Tensor) -> Tensor:
        """Return the end of a first-order step (equation 3.7 of the paper)."""
        return self.x - level_at(self.t_next) * self.h.expm1() * eps

    def second(self, eps: Tensor, eps_1: Tensor, r: float) -> Tensor:
        """Return the end of a second-order step, with a second evaluation at share r (algorithm 1)."""
        return self.first(eps) - level_at(self.t_next) / (2 * r) * self.h.expm1() * (eps_1 - eps)

    def third(self, eps: Tensor, eps_2: Tensor, r: float) -> Tensor:
        """Return the end of a third-order step, with the last evaluation at share r (algorithm 2, line 7)."""
        return self.first(eps) - level_at(self.t_next) / r * (self.h.expm1() / self.h - 1) * (eps_2 - eps)

    def stage(self, noises: Sequence[Tensor], shares: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Return (latent, level) of the next evaluation, given those so far (algorithm 2, lines 3 and 5)."""
        r = shares[len(noises) - 1]
        s, h = self.inner(r), r * self.h
        u = self.x - level_at(s) * h.expm1() * noises[0]
        if len(noises) == 2:
            r_1 = shares[0]
            u = u - level_at(s) * (r / r_1) * (h.expm1() / h - 1) * (noises[1] - noises[0])
        return u, level_at(s)


def _ends(sigmas: Tensor) -> tuple[Tensor, Tensor]:
    """Return the times of the first level and of the last above 0."""
    return half_log_snr(sigmas[0]), half_log_snr(sigmas[-1] if sigmas[-1] > 0 else sigmas[-2])


def _down(t: Tensor, t_next: Tensor, t_end: Tensor, eta: float) -> tuple[Tensor, Tensor]:
    """Return (the time to step to, the noise to add): ancestral for eta > 0, but never beyond the end."""
    if eta == 0:
        return t_next, torch.zeros_like(t)
    sigma_down, _ = ancestral_levels(level_at(t), level_at(t_next), eta)
    t_down = torch.minimum(t_end, half_log_snr(sigma_down))
    return t_down, (level_at(t_next) ** 2 - level_at(t_down) ** 2) ** 0.5


def _add_noise(state: SamplerState, x: Tensor, sigma_up: Tensor) -> SamplerState:
    """Return what changes where a step ends: the latent, with noise if there is any."""
    if state["eta"] == 0:
        return {"x": x}
    noise, stream = draw_step_noise(state["noise"], x)
    return {"x": x + sigma_up * state["s_noise"] * noise, "noise": stream}


class _DpmSolver(StagedSampler):
    """What both walks share. Options: eta (0), s_noise (1). state adds `t_end`, `eta`, `s_noise`, `noise`."""

    ends_above_zero: ClassVar[bool] = True

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state."""
        return {
            **super().begin(x, sigmas, seed, options),
            **begin_noise(x, seed, {"eta": 0.0, **options}),
            "t_end": float(_ends(sigmas)[1]),
        }

    def _noises(self, state: SamplerState, denoised: Tensor) -> list[Tensor]:
        """Return eps of all evaluations of this step."""
        x_asked, sigma = self.query(state)
        return [*state["kept"].get("noises", []), derivative(x_asked, sigma, denoised)]


class DpmFast(_DpmSolver):
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
        t_down, sigma_up = _down(t, t_next, t_end, state["eta"])
        span, noises = _Span(state["x"], t, t_down), self._noises(state, denoised)
        order = _fast_orders(len(state["sigmas"]) - 1)[step]
        if len(noises) < order:
            return ask(state, *span.stage(noises, _SHARES[order]), noises=noises)
        x = span.first(noises[0]) if order == 1 else _both_orders(span, noises)[1]
        return finish(state, **_add_noise(state, x, sigma_up))

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
        t_down, _ = _down(times[step], times[step + 1], _ends(sigmas)[1], float(options.get("eta", 0.0)))
        span = _Span(times, times[step], t_down)
        return [level_at(span.inner(share)) for share in _SHARES[order]]


def _fast_orders(evaluations: int) -> list[int]:
    """Return the orders of the steps, whose sum is the number of evaluations."""
    rest = evaluations % 3
    if rest == 0:
        return [3] * (evaluations // 3 - 1) + [2, 1]
    return [3] * (evaluations // 3) + [rest]


def _fast_times(sigmas: Tensor) -> Tensor:
    """Return the times of the solver's levels, as many as it has steps and one more."""
    start, end = _ends(sigmas)
    return torch.linspace(float(start), float(end), len(_fast_orders(len(sigmas) - 1)) + 1, dtype=sigmas.dtype)


class DpmAdaptive(_DpmSolver):
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
            "t": float(_ends(sigmas)[0]),
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
        t_down, sigma_up = _down(t, t_next, t_end, state["eta"])
        span, noises = _Span(state["x"], t, t_down), self._noises(state, denoised)
        if len(noises) < order:
            return ask(state, *span.stage(noises, _SHARES[order]), noises=noises)
        low, high = _both_orders(span, noises)
        accepted, changes = _control_step(state, _relative_error(state, low, high))
        if not accepted:
            return finish(state, state["x"], **changes)
        changes |= {**_add_noise(state, high, sigma_up), "x_low": low, "t": float(t_next)}
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


_CONTROL = {"rtol": 0.05, "atol": 0.0078, "h_init": 0.05, "accept_safety": 0.81}
_CONTROL |= {"pcoeff": 0.0, "icoeff": 1.0, "dcoeff": 0.0}
"""Options of the step-size control, and their defaults."""

_LEAST_ERROR = 1e-8
_MAX_ATTEMPTS = 10_000


def _both_orders(span: _Span, noises: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the ends of a step by the lower and by the higher order."""
    if len(noises) == 2:
        return span.first(noises[0]), span.second(noises[0], noises[1], _SHARES[2][0])
    r_1, r_2 = _SHARES[3]
    return span.second(noises[0], noises[1], r_1), span.third(noises[0], noises[2], r_2)


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
