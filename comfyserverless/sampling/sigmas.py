"""Cut a schedule to the part that one sampling call walks: strength, first and last step.

The rules are those of ComfyUI's KSampler and KSampler (Advanced) as its users know them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.sampling.parametrization import Parametrization
from comfyserverless.sampling.schedules import schedule_levels

FULL_STRENGTH = 0.9999
"""A `denoise` above this walks the whole schedule."""

MAX_LEVELS = 1_000_000
"""Longest schedule that a low `denoise` may ask for: 10,000 steps at 0.01, the ends of both widgets."""


@dataclass(frozen=True, slots=True)
class WalkRequest:
    """Which levels to walk.

    denoise: share of the noise to start from, in 0..1; less than full walks the end of a schedule of steps /
    denoise steps. start_step, last_step: half-open range of steps, None for the ends. force_full_denoise: end
    at level 0 even where last_step cuts. discards_penultimate: the sampler cannot use the level before 0.
    """

    scheduler: str
    steps: int
    denoise: float = 1.0
    start_step: int | None = None
    last_step: int | None = None
    force_full_denoise: bool = False
    discards_penultimate: bool = False


def walk_sigmas(parametrization: Parametrization, request: WalkRequest) -> Tensor:
    """Return the levels to walk, [N + 1] float32 descending; fewer than two levels mean no steps.

    Raises PromptError for an unknown scheduler, or a strength that asks for a schedule of more than MAX_LEVELS.
    """
    sigmas = _strength_sigmas(parametrization, request)
    last, first = request.last_step, request.start_step
    if last is not None and last < len(sigmas) - 1:
        sigmas = sigmas[: last + 1].clone()
        if request.force_full_denoise:
            sigmas[-1] = 0
    if first is not None:
        sigmas = sigmas[first:] if first < len(sigmas) - 1 else sigmas[:0]
    return sigmas.clone()


@contextmanager
def walking(sampler: str) -> Iterator[None]:
    """Blame the prompt for a sampler whose arithmetic breaks down over its levels or settings.

    Raises PromptError instead of an overflow, a division by zero or a singular system of equations.
    """
    try:
        yield
    except (ArithmeticError, torch.linalg.LinAlgError) as exc:  # type: ignore[attr-defined]
        raise PromptError(f"sampler {sampler!r} cannot walk these levels with these settings: {exc}") from exc


def check_scheduled(sigmas: Tensor, request: WalkRequest) -> Tensor:
    """Return levels that a scheduler chose, if they are numbers.

    Raises PromptError otherwise: kl_optimal spaces no single level, and others fail for a model whose smallest
    or largest level somebody set to one that they cannot reach.
    """
    if not torch.isfinite(sigmas).all():
        raise PromptError(
            f"scheduler {request.scheduler!r} finds no levels for this model and {request.steps} steps: they"
            f" begin with {float(sigmas[0]):g}; allowed: other schedulers, more steps, or other limits of the"
            " model's levels"
        )
    return sigmas


def check_walk(sigmas: Tensor) -> Tensor:
    """Return levels that were made or written by somebody if samplers can walk them; they may rise.

    Raises PromptError for levels that are no finite number of at least 0, or are 0 before the last one: the
    samplers divide by each level that they start a step from. One level is one to noise a latent to, and none
    means nothing to do.
    """
    for place, level in enumerate(sigmas.tolist()):
        is_last = place == len(sigmas) - 1
        if not (math.isfinite(level) and (level > 0 or (is_last and level == 0))):
            raise PromptError(
                f"sigmas cannot be walked: level {place + 1} of {len(sigmas)} is {level:g}; allowed: finite"
                " numbers above 0, and 0 at the end"
            )
    return sigmas


def _strength_sigmas(parametrization: Parametrization, request: WalkRequest) -> Tensor:
    if request.denoise > FULL_STRENGTH:
        return _scheduled(parametrization, request, request.steps)
    if request.denoise <= 0.0:
        return torch.zeros(0)
    levels = request.steps / request.denoise
    if levels > MAX_LEVELS:
        least = request.steps / MAX_LEVELS
        raise PromptError(
            f"denoise {request.denoise:g} is too small for {request.steps} steps: at least {least:g}"
        )
    return _scheduled(parametrization, request, int(levels))[-(request.steps + 1) :]


def _scheduled(parametrization: Parametrization, request: WalkRequest, steps: int) -> Tensor:
    if not request.discards_penultimate:
        return schedule_levels(request.scheduler, parametrization, steps)
    sigmas = schedule_levels(request.scheduler, parametrization, steps + 1)
    return torch.cat([sigmas[:-2], sigmas[-1:]])
