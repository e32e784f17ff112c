"""Define a sampler: a walk over noise levels whose whole state is explicit data.

Laws. The state is a dict of literals, lists and tensors: it survives pickling, and a walk that moves to
another process at any boundary continues with the same bits. Functions never change their inputs: a new
state shares the tensors that stayed. Noise levels are literals, so that reading one never waits for a GPU
or fetches a tensor. Names in formulas are those of the cited papers; D(x; sigma) is `denoised`.

Keys of every state: `x` the latent, `sigmas` the N + 1 levels (float32 values), `step` the index of the level
that the walk stands at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor

from comfyserverless.sampling.noise import begin_step_noise

SamplerState = dict[str, Any]
SamplerOptions = Mapping[str, Any]

NO_OPTIONS: SamplerOptions = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One call of the denoiser: the step it belongs to, its noise level, and whether the step ends with it."""

    step: int
    sigma: float
    is_last_of_step: bool


class Sampler(ABC):
    """Walk a latent down the noise levels, one evaluation of the denoiser at a time.

    discards_penultimate_sigma: the schedule must leave out the level before 0. uses_fresh_noise_for_mask: where
    a mask keeps parts of the image, they are noised with new noise, not with the noise of the start.
    ends_above_zero: where the last level is 0, the walk stops just above it and a trace of noise is left.
    percent_options: options that are a noise level of the model, by the share of the way down where it lies.
    is_dynamic: how many evaluations there are is known only when they are over; `evaluations` lists the first,
    and `upcoming` tells each following one.
    """

    discards_penultimate_sigma: ClassVar[bool] = False
    uses_fresh_noise_for_mask: ClassVar[bool] = False
    ends_above_zero: ClassVar[bool] = False
    percent_options: ClassVar[Mapping[str, float]] = MappingProxyType({})
    is_dynamic: ClassVar[bool] = False

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the state at the start of a walk.

        x: [B, C, ...] at noise level sigmas[0]; sigmas: [N + 1] float32 on the CPU, N >= 1, descending; seed:
        of the sampler's own noise; options: keyword arguments of the family, unknown ones are ignored.
        """
        return {"x": x, "sigmas": sigmas.tolist(), "step": 0}

    def query(self, state: SamplerState) -> tuple[Tensor, Tensor]:
        """Return (x, sigma): where the denoiser is to be evaluated next; sigma is 0-dimensional, on the CPU."""
        return state["x"], levels(state)[state["step"]]

    @abstractmethod
    def advance(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Return the state after the evaluation that `query` asked for gave `denoised` (x's shape)."""

    def evaluations(self, sigmas: Tensor, options: SamplerOptions = NO_OPTIONS) -> list[Evaluation]:
        """List all evaluations of a walk over these levels, in order; sigmas and options as in `begin`."""
        return [Evaluation(step, float(sigma), True) for step, sigma in enumerate(sigmas[:-1])]

    def upcoming(self, state: SamplerState) -> Evaluation | None:
        """Return the evaluation that a dynamic walk makes next, None at its end and for other walks."""
        return None

    def is_done(self, state: SamplerState) -> bool:
        """Tell whether the walk has reached its last level."""
        return int(state["step"]) >= len(state["sigmas"]) - 1

    def result(self, state: SamplerState) -> Tensor:
        """Return the latent at the level that the walk stands at."""
        x: Tensor = state["x"]
        return x


class OneEvaluationSampler(Sampler):
    """A sampler that evaluates the denoiser once per step, at the latent it holds."""

    def advance(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Take one step."""
        return {**state, **self.step(state, denoised), "step": state["step"] + 1}

    @abstractmethod
    def step(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Return what one step changes: `x` at the next level, and history if the family keeps any."""


class StagedSampler(Sampler):
    """A sampler whose steps may evaluate the denoiser several times.

    state adds `stage`: how many evaluations of this step are behind; `asked`: {x, sigma} of the next one, None
    for the first; `kept`: what the stages of this step hand on, by name.
    """

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the first state."""
        return {**super().begin(x, sigmas, seed, options), "stage": 0, "asked": None, "kept": {}}

    def query(self, state: SamplerState) -> tuple[Tensor, Tensor]:
        """Ask at the latent first, then where the last stage wants to."""
        asked = state["asked"]
        if asked is None:
            return super().query(state)
        return asked["x"], level(state, asked["sigma"])

    def evaluations(self, sigmas: Tensor, options: SamplerOptions = NO_OPTIONS) -> list[Evaluation]:
        """List the first evaluation of each step and those at its inner levels."""
        return list_stages(
            [[sigmas[i], *self.inner_levels(sigmas, i, options)] for i in range(len(sigmas) - 1)]
        )

    @abstractmethod
    def inner_levels(self, sigmas: Tensor, step: int, options: SamplerOptions) -> list[Tensor]:
        """Return the levels of a step's evaluations but the first."""


def list_stages(steps: Sequence[Sequence[Tensor]]) -> list[Evaluation]:
    """List evaluations, given the levels of each step."""
    return [
        Evaluation(step, float(sigma), stage == len(asked) - 1)
        for step, asked in enumerate(steps)
        for stage, sigma in enumerate(asked)
    ]


def ask(state: SamplerState, x: Tensor, sigma: Tensor, **kept: Any) -> SamplerState:
    """Return the state of a StagedSampler that wants one more evaluation in this step, and keeps values."""
    return {
        **state,
        "stage": state["stage"] + 1,
        "asked": {"x": x, "sigma": float(sigma)},
        "kept": {**state["kept"], **kept},
    }


def finish(state: SamplerState, x: Tensor, **changes: Any) -> SamplerState:
    """Return the state of a StagedSampler at the end of a step, one level down."""
    return {**state, **changes, "x": x, "step": state["step"] + 1, "stage": 0, "asked": None, "kept": {}}


class UncondSampler(Sampler):
    """A sampler that needs the estimate without guidance beside the guided one, at every scale of guidance.

    So do the samplers of CFG++ (Chung et al. 2024, arXiv 2406.08070, algorithm 2): they step to the guided
    estimate, but with the noise that the unguided one implies, written U(x; sigma), `uncond`.
    """

    @abstractmethod
    def advance_with(self, state: SamplerState, denoised: Tensor, uncond: Tensor) -> SamplerState:
        """Return the state after an evaluation gave `denoised`, and `uncond` without guidance."""

    def advance(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Advance where nothing guides, so that both estimates are the same."""
        return self.advance_with(state, denoised, denoised)


def levels(state: SamplerState, key: str = "sigmas") -> Tensor:
    """Return a list of levels of a state as a tensor on the CPU, float32 (float64 for a latent in float64)."""
    return torch.tensor(state[key], dtype=_level_dtype(state))


def level(state: SamplerState, value: float) -> Tensor:
    """Return one level as a 0-dimensional tensor, like those of `levels`."""
    return torch.tensor(value, dtype=_level_dtype(state))


def _level_dtype(state: SamplerState) -> torch.dtype:
    return torch.promote_types(state["x"].dtype, torch.float32)


def derivative(x: Tensor, sigma: Tensor, denoised: Tensor) -> Tensor:
    """Return dx/dsigma of the probability flow ODE (Karras et al. 2022, equation 1 with equation 3)."""
    return (x - denoised) / sigma


def half_log_snr(sigma: Tensor) -> Tensor:
    """Return lambda = log(alpha / sigma); in the variance-exploding view alpha is 1 (Lu et al. 2022)."""
    return sigma.log().neg()


def level_at(half_log_snr: Tensor) -> Tensor:
    """Return the level of a lambda: the inverse of `half_log_snr`."""
    return half_log_snr.neg().exp()


def ancestral_levels(sigma_from: Tensor, sigma_to: Tensor, eta: float) -> tuple[Tensor, Tensor]:
    """Split a step into (sigma_down, sigma_up): the level to step to, and the noise to add to reach sigma_to.

    sigma_up^2 is eta^2 times the posterior variance of the forward process (Ho et al. 2020, equation 7).
    """
    variance = sigma_to**2 * (sigma_from**2 - sigma_to**2) / sigma_from**2
    sigma_up = (eta * variance**0.5).clamp(max=sigma_to)
    return (sigma_to**2 - sigma_up**2) ** 0.5, sigma_up


def begin_noise(x: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
    """Return the part of a first state that adds fresh noise: options eta (1), s_noise (1), and the stream."""
    return {
        "eta": float(options.get("eta", 1.0)),
        "s_noise": float(options.get("s_noise", 1.0)),
        "noise": begin_step_noise(x, seed),
    }
