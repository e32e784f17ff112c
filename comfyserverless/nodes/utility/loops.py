"""Run a part of a graph several times: Start Loop, End Loop, and what they expand to.

End Loop does not wait for what it is connected to. It expands to one node that knows how often the loop runs
(`LoopRun`: the settings of Start Loop may be links), and that one to the body, once per iteration.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from comfyserverless.core.errors import PromptError
from comfyserverless.core.ids import NodeId
from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import FileCatalog, InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import Blocked, Items, LoweringContext, NodeResult
from comfyserverless.graph.plan import Link
from comfyserverless.nodes.taking import Inputs
from comfyserverless.nodes.utility.growing import choosing, dynamic, growing, grown, matched, matching
from comfyserverless.nodes.utility.looping import MAX_NODES, Graph, find_loop, users_outside, write_out
from comfyserverless.nodes.utility.values import take_whole

_MODULE = "comfy_extras.nodes_loop"
_MAX_LINKS = 50
_SETTINGS = ("mode", "cache_iterations", "initial_iteration_value")


async def _start(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Hold up nodes of the body that are asked for by themselves (they save): the iterations run them."""
    graph = _graph(ctx)
    if not users_outside(graph, str(ctx.hidden.unique_id)):
        return NodeResult((Blocked(),) * len(_ITERATION_OUTPUTS))
    raise PromptError(
        "Start Loop is used by a node that its End Loop does not need; connect that node to `terminations` of"
        " the End Loop, or the End Loop itself to something that is saved or shown"
    )


async def _end(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    graph = _graph(ctx)
    end = str(ctx.hidden.unique_id)
    loop = find_loop(graph, end)
    given = graph[loop.start].get("inputs", {})
    settings = {name: value for name, value in given.items() if name.partition(".")[0] in _SETTINGS}
    run = f"{end}.0.0.run"
    node = {
        "class_type": "LoopRun",
        "inputs": {**settings, "end": end, "accumulate": bool(inputs.get("accumulate", False))},
        "override_display_id": end,
    }
    return NodeResult((Link(NodeId(run), 0),), expand={run: node})


async def _run(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    """Expand to all iterations; every input is a list."""
    own = str(ctx.hidden.unique_id)
    graph = _graph(ctx)
    end = inputs["end"][0]
    if end not in graph or graph[end].get("class_type") != "EndLoop":
        raise PromptError(f"LoopRun is what End Loop becomes; there is no End Loop {end!r} in the prompt")
    loop = find_loop(graph, end)
    settings = graph[own]["inputs"]
    indices = await _indices(ctx, inputs)
    nodes: dict[str, Any] = {}
    starts: list[dict[str, Any]] = []
    for position, index in enumerate(indices):
        starts.append(
            {
                "iteration_index": index,
                "is_first": position == 0,
                "is_last": position == len(indices) - 1,
                "reuse_cache": inputs["cache_iterations"][0],
                "current_iteration_value": settings.get("initial_iteration_value"),
            }
        )
        if inputs["mode"][0] == "List":
            item = f"{own}.0.0.item{position}"
            nodes[item] = {
                "class_type": "GetItemFromList",
                "inputs": {"list": settings["mode.list"], "index": position},
                "override_display_id": loop.start,
            }
            starts[-1]["list_item"] = [item, 0]
    written = write_out(graph, loop, f"{own}.0.0.", starts)
    if not indices:
        return NodeResult((Items(()),))
    kept = written.values if inputs["accumulate"][0] else written.values[-1:]
    result = f"{own}.0.0.result"
    given = {f"values.value{at}": value for at, value in enumerate(kept)}
    given |= {f"others.other{at}": value for at, value in enumerate((*written.values, *written.others))}
    nodes[result] = {"class_type": "LoopResult", "inputs": given, "override_display_id": loop.end}
    return NodeResult((Link(NodeId(result), 0),), expand={**written.nodes, **nodes})


def _graph(ctx: LoweringContext) -> Graph:
    """Return all nodes of the prompt as far as it has grown."""
    return ChainMap({}, ctx.hidden.lineage.nodes, ctx.hidden.prompt)  # type: ignore[arg-type]


async def _indices(ctx: LoweringContext, inputs: Inputs) -> Sequence[int]:
    settings = {name: values[0] for name, values in inputs.items() if name.startswith("mode.") and values}
    start, step = 0, 1
    match inputs["mode"][0]:
        case "simple":
            end = await take_whole(ctx, settings, "mode.num_iterations")
        case "For":
            start = await take_whole(ctx, settings, "mode.start_iteration_index")
            step = await take_whole(ctx, settings, "mode.step", 1)
            end = await take_whole(ctx, settings, "mode.max_iteration")
        case _:
            end = len(inputs.get("mode.list", ()))
    if step < 1:
        raise PromptError(f"Input 'mode.step' of Start Loop must be 1 or more, but is {step}")
    if (end - start) // step > MAX_NODES:
        raise PromptError(f"The loop has {(end - start) // step} iterations; {MAX_NODES} nodes are possible")
    return range(start, end, step)


async def _iteration(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    names = ("iteration_index", "is_first", "is_last", "list_item", "current_iteration_value")
    return NodeResult(tuple(_edge(inputs.get(name, [None])) for name in names))


def _edge(values: Sequence[Value]) -> Value:
    return values[0] if len(values) == 1 else Items(tuple(values))


async def _result(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    return NodeResult((Items(tuple(value for values in grown(inputs, "values").values() for value in values)),))


def _always_new(name: str) -> Any:
    """Return a change token that says "changed" unless iterations may be taken from earlier runs."""

    def token(catalog: FileCatalog, values: Mapping[str, Any]) -> float:
        return 0.0 if values.get(name) else math.nan

    return token


def _any_inputs(submitted: Mapping[str, Any]) -> Sequence[InputSpec]:
    return [InputSpec(name, "*", {}, "optional") for name in submitted]


def _optional(spec: InputSpec) -> InputSpec:
    return replace(spec, section="optional")


_RAW: dict[str, Any] = {"lazy": True, "rawLink": True}
_MODES = (
    ("simple", (InputSpec("num_iterations", "INT", {"default": 4, "min": 0, "max": MAX_NODES}),)),
    (
        "For",
        (
            InputSpec("start_iteration_index", "INT", {"default": 0}),
            InputSpec("max_iteration", "INT", {"default": 4}),
            InputSpec("step", "INT", {"default": 1, "min": 1}),
        ),
    ),
    ("List", (matching("list", "item"),)),
)
_MODE = choosing("mode", _MODES, tooltip="How the iterations are counted.")
_CACHE = InputSpec(
    "cache_iterations",
    "BOOLEAN",
    {"default": False, "tooltip": "Take what has not changed from earlier runs."},
)
_INITIAL = _optional(matching("initial_iteration_value", "value", tooltip="Value of the first iteration."))
_RAW_INITIAL = replace(_INITIAL, options={**_INITIAL.options, **_RAW})
_START = (
    _MODE,
    _CACHE,
    InputSpec(
        "parent_iteration",
        "INT",
        {"forceInput": True, "tooltip": "iteration_index of the loop around this one."},
        "optional",
    ),
    _INITIAL,
)
_END = (
    _optional(matching("output_value", "output", **_RAW, tooltip="What the loop gives.")),
    InputSpec("next_iteration_value", "*", {**_RAW, "tooltip": "Value of the next iteration."}, "optional"),
    InputSpec(
        "accumulate",
        "BOOLEAN",
        {"default": False, "tooltip": "Give the output values of all iterations, not only of the last."},
        "optional",
    ),
    _optional(growing("terminations", InputSpec("termination", "*", _RAW), (0, _MAX_LINKS))),
)
_RUN = (_MODE, _CACHE, _RAW_INITIAL, InputSpec("end", "STRING"), InputSpec("accumulate", "BOOLEAN"))
_ITERATION = (
    InputSpec("iteration_index", "INT"),
    InputSpec("is_first", "BOOLEAN"),
    InputSpec("is_last", "BOOLEAN"),
    InputSpec("reuse_cache", "BOOLEAN"),
    InputSpec("list_item", "*", {}, "optional"),
    InputSpec("current_iteration_value", "*", {}, "optional"),
)
_ITERATION_OUTPUTS = (
    OutputSpec("INT", "iteration_index", "Counts the iterations."),
    OutputSpec("BOOLEAN", "is_first", "True in the first iteration."),
    OutputSpec("BOOLEAN", "is_last", "True in the last iteration."),
    matched("list_item", "item", tooltip="Item of the list, in mode List."),
    matched("current_iteration_value", "value", tooltip="What the iteration before has handed on."),
)

NODES = (
    NodeDeclaration(
        name="StartLoop",
        display_name="Start Loop",
        category="logic/loop",
        description="Run the nodes between Start Loop and End Loop several times.",
        python_module=_MODULE,
        lower=_start,
        inputs=_START,
        dynamic_inputs=dynamic(_START),
        is_changed=_always_new("cache_iterations"),
        outputs=_ITERATION_OUTPUTS,
    ),
    NodeDeclaration(
        name="EndLoop",
        display_name="End Loop",
        category="logic/loop",
        description="Close a loop, and give what it has made.",
        python_module=_MODULE,
        lower=_end,
        inputs=_END,
        dynamic_inputs=dynamic(_END),
        outputs=(matched("outputs", "output", is_list=True, tooltip="The last output value, or all of them."),),
    ),
    NodeDeclaration(
        name="LoopRun",
        category="logic/loop",
        dev_only=True,
        description="What End Loop expands to.",
        python_module=_MODULE,
        input_is_list=True,
        lower=_run,
        inputs=_RUN,
        dynamic_inputs=dynamic(_RUN),
        is_changed=_always_new("cache_iterations"),
        outputs=(OutputSpec("*", "outputs", is_list=True),),
    ),
    NodeDeclaration(
        name="LoopIteration",
        category="logic/loop",
        dev_only=True,
        description="What stands for Start Loop in one iteration.",
        python_module=_MODULE,
        input_is_list=True,
        lower=_iteration,
        inputs=_ITERATION,
        is_changed=_always_new("reuse_cache"),
        outputs=_ITERATION_OUTPUTS,
    ),
    NodeDeclaration(
        name="LoopResult",
        category="logic/loop",
        dev_only=True,
        description="Waits for all iterations of a loop.",
        python_module=_MODULE,
        input_is_list=True,
        lower=_result,
        inputs=(),
        dynamic_inputs=_any_inputs,
        outputs=(OutputSpec("*", "outputs", is_list=True),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
