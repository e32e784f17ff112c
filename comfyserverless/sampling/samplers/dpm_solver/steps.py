"""Take steps of DPM-Solver of the orders 1 to 3, in noise prediction.

Lu et al. 2022, DPM-Solver (arXiv 2206.00927): algorithm 1 (order 2, with r_1) and algorithm 2 (order 3).
lambda is written t, as time. A step goes from t to t + h; `eps` is the noise that an evaluation implies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from comfyserverless.sampling.noise import draw_step_noise
from comfyserverless.sampling.samplers.base import (
    SamplerOptions,
    SamplerState,
    StagedSampler,
    ancestral_levels,
    begin_noise,
    derivative,
    half_log_snr,
    level_at,
)

SHARES: tuple[tuple[float, ...], ...] = ((), (), (1 / 2,), (1 / 3, 2 / 3))
"""Where a step of each order evaluates beyond its start, as shares of the step."""


@dataclass(frozen=True, slots=True)
class Span:
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


def both_orders(span: Span, noises: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the ends of a step by the lower and by the higher order."""
    if len(noises) == 2:
        return span.first(noises[0]), span.second(noises[0], noises[1], SHARES[2][0])
    r_1, r_2 = SHARES[3]
    return span.second(noises[0], noises[1], r_1), span.third(noises[0], noises[2], r_2)


def ends(sigmas: Tensor) -> tuple[Tensor, Tensor]:
    """Return the times of the first level and of the last above 0."""
    return half_log_snr(sigmas[0]), half_log_snr(sigmas[-1] if sigmas[-1] > 0 else sigmas[-2])


def step_down(t: Tensor, t_next: Tensor, t_end: Tensor, eta: float) -> tuple[Tensor, Tensor]:
    """Return (the time to step to, the noise to add): ancestral for eta > 0, but never beyond the end."""
    if eta == 0:
        return t_next, torch.zeros_like(t)
    sigma_down, _ = ancestral_levels(level_at(t), level_at(t_next), eta)
    t_down = torch.minimum(t_end, half_log_snr(sigma_down))
    return t_down, (level_at(t_next) ** 2 - level_at(t_down) ** 2) ** 0.5


def add_noise(state: SamplerState, x: Tensor, sigma_up: Tensor) -> SamplerState:
    """Return what changes where a step ends: the latent, with noise if there is any."""
    if state["eta"] == 0:
        return {"x": x}
    noise, stream = draw_step_noise(state["noise"], x)
    return {"x": x + sigma_up * state["s_noise"] * noise, "noise": stream}


class DpmSolver(StagedSampler):
    """What both walks share. Options: eta (0), s_noise (1). state adds `t_end`, `eta`, `s_noise`, `noise`."""

    ends_above_zero: ClassVar[bool] = True

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state."""
        return {
            **super().begin(x, sigmas, seed, options),
            **begin_noise(x, seed, {"eta": 0.0, **options}),
            "t_end": float(ends(sigmas)[1]),
        }

    def _noises(self, state: SamplerState, denoised: Tensor) -> list[Tensor]:
        """Return eps of all evaluations of this step."""
        x_asked, sigma = self.query(state)
        return [*state["kept"].get("noises", []), derivative(x_asked, sigma, denoised)]
