"""Choose between values, and combine truth values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import FileCatalog, InputSpec, Lowering, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.taking import Inputs
from comfyserverless.nodes.utility.growing import dynamic, growing, grown, matched, matching
from comfyserverless.nodes.utility.values import resolved, take_whole

_MODULE = "comfy_extras.nodes_logic"
_MAX_VALUES = 100


async def _switch(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Give the chosen side; a side that is not connected gives nothing."""
    return NodeResult((inputs.get(await _chosen(ctx, inputs)),))


async def _soft_switch(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Give the chosen side, the other one if the chosen one is not connected."""
    side = await _chosen(ctx, inputs)
    value = inputs.get(side)
    return NodeResult((inputs.get(_other(side)) if value is None else value,))


async def _chosen(ctx: LoweringContext, inputs: Inputs) -> str:
    return "on_true" if await resolved(ctx, inputs["switch"]) else "on_false"


def _other(side: str) -> str:
    return "on_false" if side == "on_true" else "on_true"


async def _needs_chosen(ctx: LoweringContext, calls: Sequence[Mapping[str, Value]]) -> Sequence[str]:
    """Name the sides that any of the calls chooses, as far as they are connected and not there yet."""
    sides = {await _chosen(ctx, call): call for call in calls}
    return [side for side, call in sides.items() if side in call and call[side] is None]


async def _needs_soft(ctx: LoweringContext, calls: Sequence[Mapping[str, Value]]) -> Sequence[str]:
    needed: dict[str, None] = {}
    for call in calls:
        side = await _chosen(ctx, call)
        side = side if side in call else _other(side)
        if side in call and call[side] is None:
            needed[side] = None
    return list(needed)


def _check_soft(catalog: FileCatalog, values: Mapping[str, Any]) -> Mapping[str, str]:
    if "on_true" in values or "on_false" in values:
        return {}
    return {"on_true": "At least one of on_false and on_true must be connected"}


async def _custom_choice(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    choice = await resolved(ctx, inputs["choice"])
    return NodeResult((str(choice), await take_whole(ctx, inputs, "index", 0)))


def _accept(catalog: FileCatalog, values: Mapping[str, Any]) -> Mapping[str, str]:
    """Accept any choice: the page writes the options into the node, and the server does not know them."""
    return {}


def _joined(join: Callable[[list[bool]], bool]) -> Lowering:
    async def lower(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
        values = [await resolved(ctx, value) for value in grown(inputs, "values").values()]
        return NodeResult((join([is_true(value) for value in values]),))

    return lower


async def _not(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return NodeResult((not is_true(await resolved(ctx, inputs["value"])),))


def is_true(value: Value) -> bool:
    """Tell what Python takes a value for in a condition. Handles are true; tensors have no truth value."""
    if hasattr(value, "shape"):
        raise PromptError("An image, mask or other tensor is neither true nor false")
    return bool(value)


_CHOSEN = InputSpec("switch", "BOOLEAN")
_SIDES = tuple(matching(side, "switch", lazy=True) for side in ("on_false", "on_true"))
_FREE_SIDES = tuple(replace(side, section="optional") for side in _SIDES)
_CHOICE = InputSpec("choice", "COMBO", {"multiselect": False, "options": []})
#: The page makes a widget of its own for it, so it is not shown in `/object_info`.
_INDEX = InputSpec("index", "INT", {}, "optional")
_VALUES = (growing("values", InputSpec("value", "*"), (2, _MAX_VALUES)),)

NODES = (
    NodeDeclaration(
        name="ComfySwitchNode",
        display_name="Switch",
        category="logic",
        python_module=_MODULE,
        experimental=True,
        lower=_switch,
        check_lazy=_needs_chosen,
        inputs=(_CHOSEN, *_SIDES),
        dynamic_inputs=lambda submitted: (_CHOSEN, *_FREE_SIDES),  # shown as needed, but one side is enough
        outputs=(matched("output", "switch"),),
    ),
    NodeDeclaration(
        name="ComfySoftSwitchNode",
        display_name="Soft Switch",
        category="logic",
        python_module=_MODULE,
        experimental=True,
        lower=_soft_switch,
        check_lazy=_needs_soft,
        check_inputs=_check_soft,
        inputs=(_CHOSEN, *_FREE_SIDES),
        outputs=(matched("output", "switch"),),
    ),
    NodeDeclaration(
        name="CustomCombo",
        display_name="Custom Combo",
        category="utils",
        python_module=_MODULE,
        experimental=True,
        lower=_custom_choice,
        check_inputs=_accept,
        checked_inputs=frozenset({"choice", "index"}),
        inputs=(_CHOICE,),
        dynamic_inputs=lambda submitted: (_CHOICE, _INDEX) if "index" in submitted else (_CHOICE,),
        outputs=(OutputSpec("STRING"), OutputSpec("INT", "INDEX")),
    ),
    NodeDeclaration(
        name="ComfyAndNode",
        display_name="And",
        category="logic",
        description="True if all values are true, by Python's rules.",
        python_module=_MODULE,
        lower=_joined(all),
        inputs=_VALUES,
        dynamic_inputs=dynamic(_VALUES),
        outputs=(OutputSpec("BOOLEAN"),),
    ),
    NodeDeclaration(
        name="ComfyOrNode",
        display_name="Or",
        category="logic",
        description="True if any of the values is true, by Python's rules.",
        python_module=_MODULE,
        lower=_joined(any),
        inputs=_VALUES,
        dynamic_inputs=dynamic(_VALUES),
        outputs=(OutputSpec("BOOLEAN"),),
    ),
    NodeDeclaration(
        name="ComfyNotNode",
        display_name="Not",
        category="logic",
        description="True if the value is not, by Python's rules.",
        python_module=_MODULE,
        lower=_not,
        inputs=(InputSpec("value", "*"),),
        outputs=(OutputSpec("BOOLEAN"),),
    ),
    NodeDeclaration(
        name="InvertBooleanNode",
        display_name="Invert Boolean",
        category="logic",
        python_module=_MODULE,
        lower=_not,
        inputs=(InputSpec("value", "BOOLEAN"),),
        outputs=(OutputSpec("BOOLEAN"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
