"""Plan which conditionings go through the model together, and combine what comes back.

Entries whose inputs have equal shapes and equal chains of controls share one model call, as in the original,
because a batch of two does not give the bits of two batches of one. For the same reason the branches of an
evaluation, positive and negative, are either planned together or each for itself, whoever evaluates them. The
plan depends on literals, shapes and masks only, so that every function that looks at the same evaluation makes
the same plan.

An entry that is limited to an area sees only that part of the latent. Its counterpart on the other side then
must be seen alike: a side without an entry of that very area gets a copy of the smallest entry around it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor

from comfyserverless.sampling.parametrization import Parametrization
from comfyserverless.sampling.regions import EVERYWHERE, Region, check_inside, find_region, left_over
from comfyserverless.sampling.stacking import can_stack, stack_conds

POSITIVE, NEGATIVE, MIDDLE = 0, 1, 2

Mode = Literal["cfg", "dual", "dual_nested", "perp_neg"]
"""How the sides are put together; all but `cfg` have a third side, the middle."""

LISTED: Mapping[Mode, tuple[int, ...]] = MappingProxyType(
    {
        "cfg": (POSITIVE, NEGATIVE),
        "dual": (NEGATIVE, MIDDLE, POSITIVE),
        "dual_nested": (NEGATIVE, MIDDLE, POSITIVE),
        "perp_neg": (POSITIVE, NEGATIVE, MIDDLE),
    }
)
"""The order in which sides are listed, and so stacked, in each mode, as in the original."""

Branch = Literal["both", "positive", "negative"]
"""What of an evaluation is planned: one branch for itself, or both together."""

DEFAULT = "default"
"""Option of an entry that acts only where the others of its side leave something."""

CONTROL_COND = "cross_attn_controlnet"
"""Option of an entry whose ControlNets see another text: hidden states [N, T, D]."""

_NO_WEIGHT = 1e-37
"""Weight of nothing: a side without an active entry gives 0, not a division by 0."""

ConditioningValue = Sequence[Sequence[Any]]
"""A CONDITIONING: a sequence of [cond, options], with tensors in place of their references."""


@dataclass(frozen=True, slots=True)
class Guidance:
    """What guides one sampling call.

    applications: the control applications that entries' options may hold, each {control_net, hint, strength,
    start_percent, end_percent}; an entry's chain is known by indices into it. needs_negative: the negative is
    evaluated at every scale. branch: what of an evaluation is planned. middle, scale: the third side, and the
    second scale, of modes that have them.
    """

    positive: ConditioningValue
    negative: ConditioningValue
    cfg: float
    applications: Sequence[Mapping[str, Any]] = ()
    needs_negative: bool = False
    branch: Branch = "both"
    mode: Mode = "cfg"
    middle: ConditioningValue = ()
    scale: float = 1.0

    @property
    def uses_negative(self) -> bool:
        """Tell whether the negative takes part: at scale 1 it cancels, and is evaluated only where needed."""
        return self.needs_negative or self.mode != "cfg" or not math.isclose(self.cfg, 1.0)

    def sides(self) -> list[int]:
        """List the sides that are evaluated, in their order."""
        left_out = {"both": None, "positive": NEGATIVE, "negative": POSITIVE}[self.branch]
        sides = [side for side in LISTED[self.mode] if side != left_out]
        return sides if self.uses_negative else [side for side in sides if side != NEGATIVE]


@dataclass(frozen=True, slots=True)
class Entry:
    """One conditioning that is active at a level.

    side: POSITIVE, NEGATIVE or MIDDLE; options: what the model is told beside cond; controls: its chain, as
    indices into the applications; region, strength: where and how much it counts.
    """

    side: int
    cond: Tensor
    options: Mapping[str, Any]
    controls: tuple[int, ...]
    region: Region = EVERYWHERE
    strength: float = 1.0

    @property
    def control_cond(self) -> Tensor:
        """Return the hidden states that ControlNets see."""
        given: Tensor | None = self.options.get(CONTROL_COND)
        return self.cond if given is None else given


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
        return stack_conds([entry.cond for entry in self.entries], batch_size)

    def control_context(self, batch_size: int) -> Tensor:
        """Stack what ControlNets see in place of the entries' hidden states, as `context` does."""
        return stack_conds([entry.control_cond for entry in self.entries], batch_size)

    def stack(self, x: Tensor) -> Tensor:
        """Stack what each entry sees of a latent: [entries * B, C, h, w]."""
        parts = [entry.region.crop(x) for entry in self.entries]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def is_in_range(options: Mapping[str, Any], sigma: float, parametrization: Parametrization) -> bool:
    """Tell whether an entry or a control application acts at a level, by its start_percent and end_percent."""
    start, end = options.get("start_percent", 0.0), options.get("end_percent", 1.0)
    if start <= 0.0 and end >= 1.0:
        return True
    return parametrization.percent_to_sigma(end) <= sigma <= parametrization.percent_to_sigma(start)


def plan_batches(
    guidance: Guidance, sigma: float, parametrization: Parametrization, size: Sequence[int]
) -> list[Batch]:
    """Return the model calls of one evaluation at level sigma, in order; size: (h, w) of the latent in cells.

    Within a batch the entry listed last comes first: negatives before positives.
    """
    sources = {POSITIVE: guidance.positive, MIDDLE: guidance.middle, NEGATIVE: guidance.negative}
    sides = Sides(sources, guidance.sides(), guidance.applications)
    return plan_sides(sides, sigma, parametrization, size)


@dataclass(frozen=True, slots=True)
class Sides:
    """Conditionings by side, which of them are evaluated, in their order, and the control applications."""

    sources: Mapping[int, ConditioningValue]
    listed: Sequence[int]
    applications: Sequence[Mapping[str, Any]]


def plan_sides(
    sides: Sides, sigma: float, parametrization: Parametrization, size: Sequence[int]
) -> list[Batch]:
    """Return the model calls for some sides, as `plan_batches` does for a guidance."""
    waiting = _active_entries(sides, sigma, parametrization, size)
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
    """Return the estimate; negative: that of the negative, if it was evaluated apart."""
    positive = average_side(outputs, POSITIVE, x)
    if not guidance.uses_negative:
        return Estimate(positive, None)
    if negative is None:
        negative = average_side(outputs, NEGATIVE, x)
    middle = positive if guidance.mode == "cfg" else average_side(outputs, MIDDLE, x)
    return Estimate(put_together(guidance, positive, negative, middle), negative)


Guide = Callable[[Tensor, Tensor, float], Tensor]
"""Guide from a second estimate to a first one by a scale."""


def guide_by_scale(towards: Tensor, away: Tensor, scale: float) -> Tensor:
    """Return away + (towards - away) * scale."""
    return away + (towards - away) * scale


def put_together(
    guidance: Guidance, positive: Tensor, negative: Tensor, middle: Tensor, guide: Guide = guide_by_scale
) -> Tensor:
    """Return the guided estimate from those of all sides; guide: how the first two are put together.

    The averages of both sides, then negative + (positive - negative) * cfg (Ho and Salimans 2022,
    Classifier-Free Diffusion Guidance, equation 6, with cfg = 1 + w). With a middle: `dual` adds the ways from
    the negative to the middle times scale, and from there to the positive times cfg; `dual_nested` guides from
    the middle to the positive first, and from the negative to that; `perp_neg` goes away from what of the
    negative is perpendicular to the positive (Armandpour et al. 2023, Perp-Neg, equation 6), seen from the
    middle, the empty prompt.
    """
    if guidance.mode == "cfg":
        return guide(positive, negative, guidance.cfg)
    if guidance.mode == "perp_neg":
        return _perp_neg(positive, negative, middle, guidance)
    if guidance.mode == "dual_nested":
        text = guide(positive, middle, guidance.cfg)
        return negative + (text - negative) * guidance.scale
    return guide(middle, negative, guidance.scale) + (positive - middle) * guidance.cfg


def _perp_neg(positive: Tensor, negative: Tensor, empty: Tensor, guidance: Guidance) -> Tensor:
    towards, away = positive - empty, negative - empty
    perpendicular = away - (away * towards).sum() / torch.linalg.vector_norm(towards) ** 2 * towards
    guided: Tensor = empty + guidance.cfg * (towards - perpendicular * guidance.scale)
    return guided


def average_side(outputs: Outputs, side: int, x: Tensor) -> Tensor:
    """Return the average of a side's entries by strength and region: [B, ...], as x; 0 where nobody counts."""
    weighted = [
        (entry, part)
        for batch, denoised in outputs
        for entry, part in zip(batch.entries, denoised.chunk(len(batch.entries)), strict=True)
        if entry.side == side
    ]
    if len(weighted) == 1 and weighted[0][0].strength == 1.0 and weighted[0][0].region.is_everywhere:
        return weighted[0][1]
    total, weights = torch.zeros_like(x), torch.full_like(x, _NO_WEIGHT)
    for entry, part in weighted:
        multiplier = entry.region.weights(x, entry.strength)
        entry.region.crop(total).add_(part * multiplier)
        entry.region.crop(weights).add_(multiplier)
    return total / weights


@dataclass(frozen=True, slots=True)
class _Listed:
    """An entry of a conditioning with its region, whether it is active or not.

    limits: the options that say when, where and how much it counts, and what controls it.
    """

    cond: Tensor
    options: Mapping[str, Any]
    region: Region
    limits: Mapping[str, Any]


def _active_entries(
    sides: Sides, sigma: float, parametrization: Parametrization, size: Sequence[int]
) -> list[Entry]:
    listed = {
        side: [_Listed(cond, options, find_region(options, size), options) for cond, options in conditioning]
        for side, conditioning in sides.sources.items()
    }
    if any(each.region.box is not None for side in listed.values() for each in side):
        for side in listed:
            for other in listed:
                if other != side:
                    listed[other] += _counterparts(listed[side], listed[other])
    active = [
        (side, each)
        for side in sides.listed
        for each in listed[side]
        if is_in_range(each.limits, sigma, parametrization)
    ]
    for _, each in active:
        check_inside(each.limits, size)
    entries = [
        Entry(
            side,
            each.cond,
            each.options,
            _chain(each.limits, sides.applications),
            each.region,
            each.limits.get("strength", 1.0),
        )
        for side, each in active
    ]
    return _fill_up(entries, size) if any(DEFAULT in entry.options for entry in entries) else entries


def _fill_up(entries: Sequence[Entry], size: Sequence[int]) -> list[Entry]:
    """Let the entries that are defaults act where their side's others leave something, behind all others."""
    others = [entry for entry in entries if DEFAULT not in entry.options]
    filled: list[Entry] = []
    for entry in entries:
        if DEFAULT in entry.options:
            taken = [(each.region, each.strength) for each in others if each.side == entry.side]
            rest = left_over(taken, size, entry.cond.device)
            if rest is not None:
                filled.append(replace(entry, region=rest, strength=1.0))
    return [*others, *filled]


def _counterparts(of: Sequence[_Listed], among: Sequence[_Listed]) -> list[_Listed]:
    """Return what a side lacks so that each area of the other one has an entry of the same area."""
    made: list[_Listed] = []
    for each in of:
        box = each.region.box
        if box is None:
            continue
        around = [one for one in (*among, *made) if one.region.box is None or one.region.box.holds(box)]
        bounded = [one for one in around if one.region.box is not None]
        smallest = min(bounded, key=_cells, default=around[0] if around else None)
        if smallest is not None and smallest.region.box != box:
            made.append(_Listed(smallest.cond, smallest.options, each.region, each.limits))
    return made


def _cells(listed: _Listed) -> int:
    return 0 if listed.region.box is None else listed.region.box.cells


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


def _extent(region: Region) -> tuple[int, int] | None:
    return None if region.box is None else (region.box.height, region.box.width)


def _can_share(first: Entry, other: Entry) -> bool:
    if first.controls != other.controls or _extent(first.region) != _extent(other.region):
        return False
    if (CONTROL_COND in first.options) != (CONTROL_COND in other.options):
        return False
    return can_stack(first.cond, other.cond) and can_stack(first.control_cond, other.control_cond)
