"""Walk with the stochastic exponential integrators SEEDS of two and three stages, and exponential Heun.

Gonzalez et al. 2023, SEEDS (arXiv 2305.14267): algorithms 2 and 3 in data prediction, with the noise of a step
cut into independent parts between its stages. Weights of the stages: exponential Runge-Kutta methods (Hochbruck
and Ostermann 2010, Exponential integrators, section 2.3) by phi_1 and phi_2.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from comfyserverless.sampling.noise import NoiseState, draw_step_noise
from comfyserverless.sampling.samplers.base import (
    SamplerOptions,
    SamplerState,
    StagedSampler,
    ask,
    begin_noise,
    finish,
    half_log_snr,
    level_at,
    levels,
)


def h_phi_1(h: Tensor) -> Tensor:
    """Return h phi_1(h) = e^h - 1."""
    return torch.expm1(h)


def h_phi_2(h: Tensor) -> Tensor:
    """Return h phi_2(h) = (e^h - 1 - h) / h."""
    return (torch.expm1(h) - h) / h


class _ExponentialStages(StagedSampler):
    """Go from the step's start to one stage after the other, each from all estimates so far.

    Options: eta (1), s_noise (1). state adds `shares`: where the stages beyond the first lie, as shares of the
    step in lambda. `kept` holds `estimates`, and `drawn`: the noise at the last stage in units of its level.
    """

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state, with the stream of step noise."""
        return {
            **super().begin(x, sigmas, seed, options),
            **begin_noise(x, seed, options),
            "shares": self.shares(options),
        }

    def advance(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Go to the next stage, or to the next level."""
        sigmas, i, stage = levels(state), state["step"], state["stage"]
        if sigmas[i + 1] == 0:
            return finish(state, denoised)
        is_last = stage == len(state["shares"])
        share = 1.0 if is_last else state["shares"][stage]
        lambda_to = half_log_snr(sigmas[i + 1]) if is_last else _between(sigmas, i, share)
        sigma_to = sigmas[i + 1] if is_last else level_at(lambda_to)
        h = half_log_snr(sigmas[i + 1]) - half_log_snr(sigmas[i])
        estimates = [*state["kept"].get("estimates", []), denoised]
        decay = sigma_to / sigmas[i] * (-share * h * state["eta"]).exp()
        drift = self.drift(state, h * (state["eta"] + 1), sigma_to * lambda_to.exp(), estimates)
        x = decay * state["x"] - drift
        drawn, stream = self._draw(state, share, h)
        if drawn is not None:
            x = x + drawn * sigma_to * state["s_noise"]
        following = {**state, "noise": stream}
        if is_last:
            return finish(following, x)
        return ask(following, x, sigma_to, estimates=estimates, drawn=drawn)

    def inner_levels(self, sigmas: Tensor, step: int, options: SamplerOptions) -> list[Tensor]:
        """Return the levels of the stages, in a step that does not end at level 0."""
        if sigmas[step + 1] == 0:
            return []
        return [level_at(_between(sigmas, step, share)) for share in self.shares(options)]

    @abstractmethod
    def shares(self, options: SamplerOptions) -> list[float]:
        """Return where the stages beyond the first lie."""

    @abstractmethod
    def drift(self, state: SamplerState, h: Tensor, alpha: Tensor, estimates: Sequence[Tensor]) -> Tensor:
        """Return what the estimates take from the next stage's latent.

        h: the whole step in lambda, times 1 + eta; alpha: of the next stage.
        """

    def _draw(self, state: SamplerState, share: float, h: Tensor) -> tuple[Tensor | None, NoiseState]:
        """Return the noise at a stage, None without noise, and the stream.

        It is the noise of the stage before, faded, and a new independent part.
        """
        if not (state["eta"] > 0 and state["s_noise"] > 0):
            return None, state["noise"]
        stage, before = state["stage"], state["kept"].get("drawn")
        segment = ((state["shares"][stage - 1] if stage else 0.0) - share) * h * state["eta"]
        noise, stream = draw_step_noise(state["noise"], state["x"])
        part = segment.mul(2).expm1().neg().sqrt() * noise
        return (part if before is None else before * segment.exp() + part), stream


def _between(sigmas: Tensor, step: int, share: float) -> Tensor:
    """Return the lambda at a share of a step."""
    return torch.lerp(half_log_snr(sigmas[step]), half_log_snr(sigmas[step + 1]), share)


class Seeds2(_ExponentialStages):
    """SEEDS-2. Options beside the noise's: r (0.5), solver_type.

    solver_type: `phi_1` takes one exponential step with an interpolated estimate, `phi_2` has the weights of a
    second-order exponential Runge-Kutta method. r, solver: defaults of the options. is_ode: no noise.
    """

    def __init__(
        self, r: float = 0.5, solver: Literal["phi_1", "phi_2"] = "phi_1", is_ode: bool = False
    ) -> None:
        self.r = r
        self.solver = solver
        self.is_ode = is_ode

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state."""
        solver = str(options.get("solver_type", self.solver))
        given = {**options, "eta": 0.0} if self.is_ode else options
        return {**super().begin(x, sigmas, seed, given), "solver_type": solver}

    def shares(self, options: SamplerOptions) -> list[float]:
        """Return the place of the second stage."""
        return [float(options.get("r", self.r))]

    def drift(self, state: SamplerState, h: Tensor, alpha: Tensor, estimates: Sequence[Tensor]) -> Tensor:
        """Return what the estimates take from the next stage's latent."""
        r: float = state["shares"][0]
        if len(estimates) == 1:
            return alpha * h_phi_1(-r * h) * estimates[0]
        first, second = estimates
        if state["solver_type"] == "phi_1":
            return alpha * h_phi_1(-h) * torch.lerp(first, second, 1 / (2 * r))
        b2 = h_phi_2(-h) / r
        mixed: Tensor = (h_phi_1(-h) - b2) * first + b2 * second
        return alpha * mixed


class Seeds3(_ExponentialStages):
    """SEEDS-3: stages at r_1 and r_2 (1/3 and 2/3) of the step. Options: r_1, r_2 and the noise's."""

    def shares(self, options: SamplerOptions) -> list[float]:
        """Return the places of the second and third stage."""
        return [float(options.get("r_1", 1.0 / 3)), float(options.get("r_2", 2.0 / 3))]

    def drift(self, state: SamplerState, h: Tensor, alpha: Tensor, estimates: Sequence[Tensor]) -> Tensor:
        """Return what the estimates take from the next stage's latent."""
        r_1, r_2 = state["shares"]
        if len(estimates) == 1:
            return alpha * h_phi_1(-r_1 * h) * estimates[0]
        if len(estimates) == 2:
            r, weight = r_2, r_2 / r_1 * h_phi_2(-r_2 * h)
        else:
            r, weight = 1.0, h_phi_2(-h) / r_2
        mixed: Tensor = (h_phi_1(-r * h) - weight) * estimates[0] + weight * estimates[-1]
        return alpha * mixed
