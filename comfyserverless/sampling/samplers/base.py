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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

SamplerState = dict[str, Any]
SamplerOptions = Mapping[str, Any]


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
    """

    discards_penultimate_sigma: ClassVar[bool] = False
    uses_fresh_noise_for_mask: ClassVar[bool] = False

    def begin(self, x: Tensor, sigmas: Tensor, seed: int, options: SamplerOptions) -> SamplerState:
        """Return the state at the start of a walk.

        x: [B, C, ...] at noise level sigmas[0]; sigmas: [N + 1] float32 on the CPU, N >= 1, descending; seed:
        of the sampler's own noise; options: keyword arguments of the family, unknown ones are ignored.
        """
        return {"x": x, "sigmas": sigmas.tolist(), "step": 0}

    @abstractmethod
    def query(self, state: SamplerState) -> tuple[Tensor, Tensor]:
        """Return (x, sigma): where the denoiser is to be evaluated next; sigma is 0-dimensional, on the CPU."""

    @abstractmethod
    def advance(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Return the state after the evaluation that `query` asked for gave `denoised` (x's shape)."""

    def evaluations(self, sigmas: Tensor) -> list[Evaluation]:
        """List all evaluations of a walk over these levels, in order."""
        return [Evaluation(step, float(sigma), True) for step, sigma in enumerate(sigmas[:-1])]

    def is_done(self, state: SamplerState) -> bool:
        """Tell whether the walk has reached its last level."""
        return int(state["step"]) >= len(state["sigmas"]) - 1

    def result(self, state: SamplerState) -> Tensor:
        """Return the latent at the level that the walk stands at."""
        x: Tensor = state["x"]
        return x


class OneEvaluationSampler(Sampler):
    """A sampler that evaluates the denoiser once per step, at the latent it holds."""

    def query(self, state: SamplerState) -> tuple[Tensor, Tensor]:
        """Return the latent and the level that the walk stands at."""
        return state["x"], levels(state)[state["step"]]

    def advance(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Take one step."""
        return {**state, **self.step(state, denoised), "step": state["step"] + 1}

    @abstractmethod
    def step(self, state: SamplerState, denoised: Tensor) -> SamplerState:
        """Return what one step changes: `x` at the next level, and history if the family keeps any."""


def levels(state: SamplerState, key: str = "sigmas") -> Tensor:
    """Return a list of levels of a state as a tensor on the CPU, float32 (float64 for a latent in float64)."""
    return torch.tensor(state[key], dtype=torch.promote_types(state["x"].dtype, torch.float32))


def derivative(x: Tensor, sigma: Tensor, denoised: Tensor) -> Tensor:
    """Return dx/dsigma of the probability flow ODE (Karras et al. 2022, equation 1 with equation 3)."""
    return (x - denoised) / sigma
