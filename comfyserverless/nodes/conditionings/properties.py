"""Limit conditionings by mask and time in one node, alone or as pairs, and put them behind others.

A TIMESTEPS_RANGE is a list [start, end] of shares of the way. What limits is absent leaves an entry as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from comfyserverless.core.errors import PromptError
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.conditioning import MAX_ENTRIES
from comfyserverless.nodes.specs import combo, number, socket
from comfyserverless.nodes.taking import Conditioning, Inputs, take_conditioning, take_tensor

_MODULE, _CATEGORY = "comfy_extras.nodes_hooks", "advanced/hooks"
_TIMES = "TIMESTEPS_RANGE"
_RANGE_SIDES = 2


async def _range(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Return a range, the one before it, and the one after it."""
    start, end = inputs["start_percent"], inputs["end_percent"]
    return NodeResult(([start, end], [0.0, start], [end, 1.0]))


def _limits(inputs: Inputs) -> dict[str, Any]:
    """Return the options that all entries get. Raises PromptError for hooks, or what is no range."""
    if inputs.get("hooks") is not None:
        raise PromptError("hooks of conditionings are not supported by this server")
    limits: dict[str, Any] = {}
    if inputs.get("mask") is not None:
        limits["mask"] = take_tensor(inputs, "mask", "MASK")
        limits["set_area_to_bounds"] = inputs["set_cond_area"] != "default"
        limits["mask_strength"] = inputs["strength"]
    if (times := inputs.get("timesteps")) is not None:
        if not isinstance(times, list) or len(times) != _RANGE_SIDES:
            raise PromptError(f"Input 'timesteps' takes a {_TIMES}, but got {type(times).__name__}")
        limits["start_percent"], limits["end_percent"] = times
    return limits


def _behind(own: Conditioning, new: Conditioning) -> Conditioning:
    if (count := len(own) + len(new)) > MAX_ENTRIES:
        raise PromptError(f"The combined conditioning has {count} entries, at most {MAX_ENTRIES} are possible")
    return [*own, *new]


def _declare(name: str, title: str, kind: str, sides: Sequence[str], is_combining: bool) -> NodeDeclaration:
    """Declare a node that limits conditionings, named SIDE_NEW, and may put them behind those named SIDE."""

    async def lower(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
        limits, made = _limits(inputs), []
        for side in sides:
            new: Conditioning = [
                [cond, {**options, **limits}] for cond, options in take_conditioning(inputs, f"{side}_NEW")
            ]
            made.append(_behind(take_conditioning(inputs, side), new) if is_combining else new)
        return NodeResult(tuple(made))

    names = (*(sides if is_combining else ()), *(f"{side}_NEW" for side in sides))
    return NodeDeclaration(
        name=name,
        display_name=title,
        category=f"{_CATEGORY}/cond {kind}",
        python_module=_MODULE,
        experimental=True,
        lower=lower,
        inputs=(
            *(socket(each, "CONDITIONING") for each in names),
            number("strength", 1.0, 0.0, 10.0, step=0.01),
            combo("set_cond_area", ("default", "mask bounds")),
            InputSpec("mask", "MASK", section="optional"),
            InputSpec("hooks", "HOOKS", section="optional"),
            InputSpec("timesteps", _TIMES, section="optional"),
        ),
        outputs=tuple(OutputSpec("CONDITIONING", side if len(sides) > 1 else "") for side in sides),
    )


async def _combine_pairs(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    pairs = ((f"{side}_A", f"{side}_B") for side in ("positive", "negative"))
    taken = [[take_conditioning(inputs, name) for name in names] for names in pairs]
    return NodeResult(tuple(_behind(*both) for both in taken))


_SHARE = {"low": 0.0, "high": 1.0, "step": 0.001}
_PAIR = ("positive", "negative")

NODES = (
    _declare("ConditioningSetProperties", "Cond Set Props", "single", ("cond",), False),
    _declare("ConditioningSetPropertiesAndCombine", "Cond Set Props Combine", "single", ("cond",), True),
    _declare("PairConditioningSetProperties", "Cond Pair Set Props", "pair", _PAIR, False),
    _declare("PairConditioningSetPropertiesAndCombine", "Cond Pair Set Props Combine", "pair", _PAIR, True),
    NodeDeclaration(
        name="PairConditioningCombine",
        display_name="Cond Pair Combine",
        category=f"{_CATEGORY}/cond pair",
        python_module=_MODULE,
        experimental=True,
        lower=_combine_pairs,
        inputs=tuple(
            socket(name, "CONDITIONING") for name in ("positive_A", "negative_A", "positive_B", "negative_B")
        ),
        outputs=tuple(OutputSpec("CONDITIONING", side) for side in _PAIR),
    ),
    NodeDeclaration(
        name="ConditioningTimestepsRange",
        display_name="Timesteps Range",
        category=_CATEGORY,
        python_module=_MODULE,
        experimental=True,
        lower=_range,
        inputs=(number("start_percent", 0.0, **_SHARE), number("end_percent", 1.0, **_SHARE)),
        outputs=(OutputSpec(_TIMES), OutputSpec(_TIMES, "BEFORE_RANGE"), OutputSpec(_TIMES, "AFTER_RANGE")),
    ),
)
"""The declarations of this module, in the order of the node menu."""
