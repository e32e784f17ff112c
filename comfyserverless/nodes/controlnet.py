"""Attach ControlNets to conditionings: symbolic, an application is a small dict in the options.

The type of a union ControlNet is a part of its handle. An application is {control_net, hint, strength,
start_percent, end_percent}; equal applications are computed once per model call, however many conditionings
hold them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import UNION_TYPES, Value
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.specs import choice, number, socket
from comfyserverless.nodes.taking import (
    Conditioning,
    Inputs,
    take_conditioning,
    take_control_net,
    take_tensor,
)

CONTROL = "control"
"""Option of a conditioning: its applications, in the order in which they were attached."""

APPLIES_TO_NEGATIVE = "control_apply_to_uncond"
"""Option of a conditioning: a negative without any control gets this one's (the old apply node)."""


MAX_APPLICATIONS = 64
"""How many ControlNets one conditioning, and one sampler, takes: lists that grow with every node must end."""


async def _apply_to_pair(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    positive, negative = take_conditioning(inputs, "positive"), take_conditioning(inputs, "negative")
    application = _application(inputs, inputs["start_percent"], inputs["end_percent"])
    if application["strength"] == 0:
        return NodeResult((positive, negative))
    return NodeResult(
        tuple(_attach(side, application, applies_to_negative=False) for side in (positive, negative))
    )


async def _apply_to_one(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    conditioning = take_conditioning(inputs, "conditioning")
    application = _application(inputs, 0.0, 1.0)
    if application["strength"] == 0:
        return NodeResult((conditioning,))
    return NodeResult((_attach(conditioning, application, applies_to_negative=True),))


async def _set_type(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Set what a union ControlNet is used as; a name that is no type means that it is not told."""
    name = inputs["type"]
    types = (UNION_TYPES.index(name),) if name in UNION_TYPES else ()
    return NodeResult((msgspec.structs.replace(take_control_net(inputs), types=types),))


def _application(inputs: Inputs, start_percent: float, end_percent: float) -> dict[str, Value]:
    return {
        "control_net": take_control_net(inputs),
        "hint": take_tensor(inputs, "image"),
        "strength": inputs["strength"],
        "start_percent": start_percent,
        "end_percent": end_percent,
    }


def _attach(
    conditioning: Conditioning, application: dict[str, Value], *, applies_to_negative: bool
) -> Conditioning:
    if any(len(options.get(CONTROL, ())) >= MAX_APPLICATIONS for _, options in conditioning):
        raise _too_many()
    return [
        [
            tensor,
            {
                **options,
                CONTROL: [*options.get(CONTROL, ()), application],
                APPLIES_TO_NEGATIVE: applies_to_negative,
            },
        ]
        for tensor, options in conditioning
    ]


def spread_to_negative(positive: Conditioning, negative: Conditioning) -> Conditioning:
    """Return the negative with the controls that the old apply node put on the positive only.

    ComfyUI's rule: if no negative entry has a control of its own, the controlled positive entries hand theirs
    to the negative entries in turn (the last one stays); entries limited to an area take no part.
    """
    givers = [options for _, options in positive if not has_area(options) and options.get(APPLIES_TO_NEGATIVE)]
    whole = [index for index, (_, options) in enumerate(negative) if not has_area(options)]
    if not givers or not whole or any(negative[index][1].get(CONTROL) for index in whole):
        return negative
    spread = [list(entry) for entry in negative]
    for turn, options in enumerate(givers):
        index = whole[turn % len(whole)]
        spread[index] = [negative[index][0], {**negative[index][1], CONTROL: options[CONTROL]}]
    return spread


def has_area(options: Mapping[str, Value]) -> bool:
    """Tell whether a conditioning with these options is limited to a part of the picture."""
    return "area" in options or bool(options.get("set_area_to_bounds"))


def distinct_applications(positive: Conditioning, negative: Conditioning) -> list[dict[str, Value]]:
    """List the different applications of both sides, in the order in which they are first met.

    Raises PromptError if there are more than MAX_APPLICATIONS.
    """
    found: list[dict[str, Value]] = []
    for _, options in [*positive, *negative]:
        for application in options.get(CONTROL, ()):
            if application not in found:
                found.append(application)
        if len(found) > MAX_APPLICATIONS:
            raise _too_many()
    return found


def _too_many() -> PromptError:
    return PromptError(f"More than {MAX_APPLICATIONS} ControlNets are applied together")


def _percent(name: str, default: float) -> InputSpec:
    return number(name, default, 0.0, 1.0, step=0.001)


_STRENGTH = number("strength", 1.0, 0.0, 10.0, step=0.01)

NODES = (
    NodeDeclaration(
        name="ControlNetApply",
        display_name="Apply ControlNet (OLD)",
        category="conditioning/controlnet",
        deprecated=True,
        lower=_apply_to_one,
        inputs=(
            socket("conditioning", "CONDITIONING"),
            socket("control_net", "CONTROL_NET"),
            socket("image", "IMAGE"),
            _STRENGTH,
        ),
        outputs=(OutputSpec("CONDITIONING"),),
    ),
    NodeDeclaration(
        name="ControlNetApplyAdvanced",
        display_name="Apply ControlNet",
        category="conditioning/controlnet",
        lower=_apply_to_pair,
        inputs=(
            socket("positive", "CONDITIONING"),
            socket("negative", "CONDITIONING"),
            socket("control_net", "CONTROL_NET"),
            socket("image", "IMAGE"),
            _STRENGTH,
            _percent("start_percent", 0.0),
            _percent("end_percent", 1.0),
            InputSpec("vae", "VAE", section="optional"),
        ),
        outputs=(OutputSpec("CONDITIONING", "positive"), OutputSpec("CONDITIONING", "negative")),
    ),
    NodeDeclaration(
        name="SetUnionControlNetType",
        category="conditioning/controlnet",
        lower=_set_type,
        inputs=(socket("control_net", "CONTROL_NET"), choice("type", ("auto", *UNION_TYPES))),
        outputs=(OutputSpec("CONTROL_NET"),),
        python_module="comfy_extras.nodes_controlnet",
    ),
)
"""The declarations of this module, in the order of the node menu."""
