"""Plan which conditionings go through the model together, and combine what comes back.

Entries whose inputs have equal shapes and equal chains of controls share one model call, as in the original,
because a batch of two does not give the bits of two batches of one. For the same reason the branches of an
evaluation, positive and negative, are either planned together or each for itself, whoever evaluates them. The
plan depends on literals and shapes only, so that every function that looks at the same evaluation makes the
same plan.

Not here yet: areas and masks. They would give entries a crop of x in `model_batch` and a weight per cell in
`combine`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from comfyserverless.sampling.parametrization import Parametrization

POSITIVE, NEGATIVE = 0, 1

Branch = Literal["both", "positive", "negative"]
"""What of an evaluation is planned: one branch for itself, or both together."""

_MAX_REPEATS = 4
"""Conditionings whose lengths differ more than this are not repeated to a common length."""

_NO_WEIGHT = 1e-37
"""Weight of nothing: a side without an active entry gives 0, not a division by 0."""

ConditioningValue = Sequence[Sequence[Any]]
"""A CONDITIONING: a sequence of [cond, options], with tensors in place of their references."""


@dataclass(frozen=True, slots=True)
class Guidance:
    """What guides one sampling call.

    applications: the control applications that entries' options may hold, each {control_net, hint, strength,
    start_percent, end_percent}; an entry's chain is known by indices into it. needs_negative: the negative is
    evaluated at every scale. branch: what of an evaluation is planned.
    """

    positive: ConditioningValue
    negative: ConditioningValue
    cfg: float
    applications: Sequence[Mapping[str, Any]] = ()
    needs_negative: bool = False
    branch: Branch = "both"

    @property
    def uses_negative(self) -> bool:
        """Tell whether the negative takes part: at scale 1 it cancels, and is evaluated only where needed."""
        return self.needs_negative or not math.isclose(self.cfg, 1.0)


@dataclass(frozen=True, slots=True)
class Entry:
    """One conditioning that is active at a level.

    side: POSITIVE or NEGATIVE; controls: its chain, as indices into the applications.
    """

    side: int
    cond: Tensor
    options: Mapping[str, Any]
    controls: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries that go through the model in one call, in the order they are stacked.

    index: its place in the plan.
    """

    index: int
    entries: tuple[Entry, ...]

    @property
    def controls(self) -> tuple[int, ...]:
        """Return the chain of controls that all entries share, as indices into the applications."""
        return self.entries[0].controls

    def context(self, batch_size: int) -> Tensor:
        """Stack the entries' hidden states for latents of `batch_size` items: [entries * batch_size, T, D].

        Shorter ones are repeated along T to the least common multiple of all lengths.
        """
        length = math.lcm(*(entry.cond.shape[1] for entry in self.entries))
        parts = [fit_batch(entry.cond, batch_size) for entry in self.entries]
        repeated = [c if c.shape[1] == length else c.repeat(1, length // c.shape[1], 1) for c in parts]
        return repeated[0] if len(repeated) == 1 else torch.cat(repeated)

    def stack(self, x: Tensor) -> Tensor:
        """Repeat a latent (or a [B] level) once per entry: [entries * B, ...]."""
        return x if len(self.entries) == 1 else torch.cat([x] * len(self.entries))


def fit_batch(value: Tensor, batch_size: int) -> Tensor:
    """Repeat or cut a tensor along its first dimension to batch_size items."""
    count = value.shape[0]
    if count == batch_size:
        return value
    if count > batch_size:
        return value[:batch_size]
    return value.repeat(math.ceil(batch_size / count), *[1] * (value.ndim - 1))[:batch_size]


def is_in_range(options: Mapping[str, Any], sigma: float, parametrization: Parametrization) -> bool:
    """Tell whether an entry or a control application acts at a level, by its start_percent and end_percent."""
    start, end = options.get("start_percent", 0.0), options.get("end_percent", 1.0)
    if start <= 0.0 and end >= 1.0:
        return True
    return parametrization.percent_to_sigma(end) <= sigma <= parametrization.percent_to_sigma(start)


def plan_batches(guidance: Guidance, sigma: float, parametrization: Parametrization) -> list[Batch]:
    """Return the model calls of one evaluation at level sigma, in order.

    Within a batch the entry listed last comes first: negatives before positives.
    """
    waiting = _active_entries(guidance, sigma, parametrization)
    batches: list[Batch] = []
    while waiting:
        together = [entry for entry in waiting if _can_share(waiting[0], entry)]
        waiting = [entry for entry in waiting if not _can_share(waiting[0], entry)]
        batches.append(Batch(len(batches), tuple(reversed(together))))
    return batches


@dataclass(frozen=True, slots=True)
class Estimate:
    """What an evaluation says about the clean latent: guided, and by the negative alone (`uncond`).

    uncond is None where the negative does not take part.
    """

    denoised: Tensor
    uncond: Tensor | None


Outputs = Sequence[tuple[Batch, Tensor]]
"""Batches, and the denoised latents [entries * B, ...] that came back for each."""


def combine(guidance: Guidance, outputs: Outputs, x: Tensor, negative: Tensor | None = None) -> Estimate:
    """Return the estimate; negative: that of the negative, if it was evaluated apart.

    The averages of both sides, then negative + (positive - negative) * cfg (Ho and Salimans 2022,
    Classifier-Free Diffusion Guidance, equation 6, with cfg = 1 + w).
    """
    positive = average_side(outputs, POSITIVE, x)
    if not guidance.uses_negative:
        return Estimate(positive, None)
    if negative is None:
        negative = average_side(outputs, NEGATIVE, x)
    return Estimate(negative + (positive - negative) * guidance.cfg, negative)


def average_side(outputs: Outputs, side: int, x: Tensor) -> Tensor:
    """Return the average of a side's entries by `strength`: [B, ...], as x; 0 without entries."""
    weighted = [
        (entry.options.get("strength", 1.0), part)
        for batch, denoised in outputs
        for entry, part in zip(batch.entries, denoised.chunk(len(batch.entries)), strict=True)
        if entry.side == side
    ]
    return _average(weighted, x)


def _average(weighted: Sequence[tuple[float, Tensor]], x: Tensor) -> Tensor:
    if len(weighted) == 1 and weighted[0][0] == 1.0:
        return weighted[0][1]
    total, weights = torch.zeros_like(x), torch.full_like(x, _NO_WEIGHT)
    for weight, part in weighted:
        multiplier = torch.full_like(x, weight)
        total += part * multiplier
        weights += multiplier
    return total / weights


def _active_entries(guidance: Guidance, sigma: float, parametrization: Parametrization) -> list[Entry]:
    sides = [(POSITIVE, guidance.positive)] if guidance.branch != "negative" else []
    if guidance.uses_negative and guidance.branch != "positive":
        sides.append((NEGATIVE, guidance.negative))
    return [
        Entry(side, cond, options, _chain(options, guidance.applications))
        for side, listed in sides
        for cond, options in listed
        if is_in_range(options, sigma, parametrization)
    ]


def _chain(options: Mapping[str, Any], applications: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    return tuple(_index_of(application, applications) for application in options.get("control") or ())


def _index_of(application: Mapping[str, Any], applications: Sequence[Mapping[str, Any]]) -> int:
    for index, candidate in enumerate(applications):
        if _is_same_application(application, candidate):
            return index
    raise ValueError("a conditioning holds a control application that is not listed in `applications`")


def _is_same_application(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    literals = ("control_net", "strength", "start_percent", "end_percent")
    return all(one[name] == other[name] for name in literals) and _is_same_tensor(one["hint"], other["hint"])


def _is_same_tensor(one: Tensor, other: Tensor) -> bool:
    """Compare by memory first: one reference may have been resolved into two tensors, or into two copies."""
    if one is other:
        return True
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one.data_ptr() == other.data_ptr() or torch.equal(one, other)


def _can_share(first: Entry, other: Entry) -> bool:
    if first.controls != other.controls:
        return False
    one, two = first.cond.shape, other.cond.shape
    if one == two:
        return True
    if one[0] != two[0] or one[2] != two[2]:
        return False
    return math.lcm(one[1], two[1]) // min(one[1], two[1]) <= _MAX_REPEATS
