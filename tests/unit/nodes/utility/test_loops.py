"""Loops: how often the body runs, what is handed on, and what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.core.ids import NodeId
from comfyserverless.graph.declaration import declared_for
from comfyserverless.graph.lowering import HiddenInputs, Items, Lineage, NodeResult
from comfyserverless.graph.plan import Link
from comfyserverless.nodes.registry import BUILTIN
from comfyserverless.nodes.utility.looping import MAX_NODES
from tests.support.graph_fakes import FakeContext


class _Runner:
    """Run a graph of symbolic nodes: lists, raw links and expansion, nothing else."""

    def __init__(self, graph: dict[str, Any]) -> None:
        self.graph = graph
        self.lineage = Lineage()
        self.results: dict[str, NodeResult] = {}
        #: Classes in the order in which they ran.
        self.ran: list[str] = []

    async def values(self, node: str, slot: int = 0) -> Sequence[Any]:
        if node not in self.results:
            self.results[node] = await self._run(node)
        value = self.results[node].outputs[slot]
        return value.values if isinstance(value, Items) else (value,)

    async def _run(self, node: str) -> NodeResult:
        raw = self.lineage.nodes.get(NodeId(node)) or self.graph[node]
        declaration = BUILTIN.get(raw["class_type"])
        assert declaration is not None
        declaration = declared_for(declaration, raw["inputs"])
        given = {}
        for spec in declaration.inputs:
            if spec.name in raw["inputs"]:
                value = raw["inputs"][spec.name]
                is_link = isinstance(value, list) and not spec.options.get("rawLink")
                given[spec.name] = await self.values(*value) if is_link else (value,)
        self.ran.append(raw["class_type"])
        context = _Context(node_id=node)
        context.given = HiddenInputs(self.graph, None, NodeId(node), self.lineage)
        if declaration.input_is_list:
            call: dict[str, Any] = {name: list(values) for name, values in given.items()}
        else:
            call = {name: values[0] for name, values in given.items()}
        result = await declaration.lower(context, call)
        for name, added in (result.expand or {}).items():
            assert NodeId(name) not in self.lineage.nodes
            self.lineage.nodes[NodeId(name)] = added
        outputs = []
        for value in result.outputs:
            found = await self.values(value.source, value.slot) if isinstance(value, Link) else None
            outputs.append(value if found is None else Items(tuple(found)))
        return NodeResult(outputs)


class _Context(FakeContext):
    given: HiddenInputs

    @property
    def hidden(self) -> HiddenInputs:
        return self.given


def _node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {
        "class_type": class_type,
        "inputs": {name.replace("__", "."): value for name, value in inputs.items()},
    }


def _start(mode: str = "simple", **inputs: Any) -> dict[str, Any]:
    return _node("StartLoop", mode=mode, cache_iterations=False, **inputs)


def _math(expression: str, **inputs: Any) -> dict[str, Any]:
    return _node("ComfyMathExpression", expression=expression, **{f"values__{k}": v for k, v in inputs.items()})


def _doubling(**start: Any) -> dict[str, Any]:
    return {
        "one": _node("PrimitiveInt", value=1),
        "start": _start(initial_iteration_value=["one", 0], **start),
        "twice": _math("a * 2", a=["start", 4]),
        "end": _node("EndLoop", output_value=["twice", 1], next_iteration_value=["twice", 1], accumulate=True),
    }


async def test_value_is_handed_on_from_iteration_to_iteration() -> None:
    assert await _Runner(_doubling(mode__num_iterations=5)).values("end") == (2, 4, 8, 16, 32)


async def test_only_the_last_value_is_given_unless_they_are_accumulated() -> None:
    graph = _doubling(mode__num_iterations=5)
    graph["end"]["inputs"]["accumulate"] = False
    runner = _Runner(graph)
    assert await runner.values("end") == (32,)
    assert runner.ran.count("ComfyMathExpression") == 5


async def test_number_of_iterations_may_be_calculated() -> None:
    graph = _doubling(mode__num_iterations=["count", 1]) | {"count": _math("1 + 2", a=0)}
    assert await _Runner(graph).values("end") == (2, 4, 8)


async def test_loop_without_iterations_gives_an_empty_list() -> None:
    assert await _Runner(_doubling(mode__num_iterations=0)).values("end") == ()


async def test_index_counts_as_the_mode_says_and_first_and_last_are_told() -> None:
    graph = {
        "start": _start("For", mode__start_iteration_index=3, mode__max_iteration=10, mode__step=3),
        "text": _node(
            "StringFormat",
            f_string="{a} {b} {c}",
            values__a=["start", 0],
            values__b=["start", 1],
            values__c=["start", 2],
        ),
        "end": _node("EndLoop", output_value=["text", 0], accumulate=True),
    }
    assert await _Runner(graph).values("end") == ("3 True False", "6 False False", "9 False True")


async def test_list_gives_one_item_per_iteration() -> None:
    graph = {
        "a": _node("PrimitiveString", value="a"),
        "b": _node("PrimitiveString", value="b"),
        "list": _node("CreateList", inputs__input0=["a", 0], inputs__input1=["b", 0]),
        "start": _start("List", mode__list=["list", 0]),
        "upper": _node("CaseConverter", string=["start", 3], mode="UPPERCASE"),
        "end": _node("EndLoop", output_value=["upper", 0], accumulate=True),
    }
    assert await _Runner(graph).values("end") == ("A", "B")


async def test_carried_list_stays_a_list() -> None:
    """The greatest common divisor of 84 and 60, as a template of ComfyUI computes it."""
    graph = {
        "first": _node("CreateList", inputs__input0=["x", 0], inputs__input1=["y", 0]),
        "x": _node("PrimitiveInt", value=84),
        "y": _node("PrimitiveInt", value=60),
        "start": _start(mode__num_iterations=6, initial_iteration_value=["first", 0]),
        "a": _node("GetItemFromList", list=["start", 4], index=0),
        "b": _node("GetItemFromList", list=["start", 4], index=1),
        "rest": _math("a % b if b > 0 else 0", a=["a", 0], b=["b", 0]),
        "kept": _math("b if b > 0 else a", a=["a", 0], b=["b", 0]),
        "next": _node("CreateList", inputs__input0=["kept", 1], inputs__input1=["rest", 1]),
        "end": _node("EndLoop", output_value=["next", 0], next_iteration_value=["next", 0], accumulate=False),
        "result": _node("GetItemFromList", list=["end", 0], index=0),
    }
    assert await _Runner(graph).values("result") == (12,)


async def test_inner_loop_runs_in_every_iteration_of_the_outer_one() -> None:
    graph = {
        "outer": _start(mode__num_iterations=2),
        "inner": _start(mode__num_iterations=3, parent_iteration=["outer", 0]),
        "sum": _math("10 * a + b", a=["outer", 0], b=["inner", 0]),
        "inner_end": _node("EndLoop", output_value=["sum", 1], accumulate=True),
        "outer_end": _node("EndLoop", output_value=["inner_end", 0], accumulate=True),
    }
    assert await _Runner(graph).values("outer_end") == (0, 1, 2, 10, 11, 12)


async def test_loop_may_begin_with_what_another_one_gave() -> None:
    graph = _doubling(mode__num_iterations=3)
    graph["end"]["inputs"]["accumulate"] = False
    graph |= {
        "start2": _start(mode__num_iterations=2, initial_iteration_value=["end", 0]),
        "add": _math("a + 1", a=["start2", 4]),
        "end2": _node("EndLoop", output_value=["add", 1], next_iteration_value=["add", 1], accumulate=True),
    }
    assert await _Runner(graph).values("end2") == (9, 10)


async def test_terminations_run_in_every_iteration_and_nothing_outside_runs_twice() -> None:
    graph = _doubling(mode__num_iterations=4) | {
        "outside": _node("PrimitiveString", value="x"),
        "joined": _node("StringFormat", f_string="{a}{b}", values__a=["outside", 0], values__b=["start", 0]),
    }
    graph["end"]["inputs"]["terminations.termination0"] = ["joined", 0]
    runner = _Runner(graph)
    await runner.values("end")
    assert (runner.ran.count("StringFormat"), runner.ran.count("PrimitiveString")) == (4, 1)


async def test_nodes_of_an_iteration_are_shown_at_the_nodes_they_are_copies_of() -> None:
    runner = _Runner(_doubling(mode__num_iterations=2))
    await runner.values("end")
    shown = [(raw["class_type"], raw["override_display_id"]) for raw in runner.lineage.nodes.values()]
    pair = [("LoopIteration", "start"), ("ComfyMathExpression", "twice")]
    assert shown == [("LoopRun", "end"), *pair, *pair, ("LoopResult", "end")]


async def test_node_that_the_end_does_not_need_cannot_use_the_start() -> None:
    graph = _doubling(mode__num_iterations=1) | {"lonely": _math("a + 1", a=["twice", 1])}
    with pytest.raises(PromptError, match="connect that node to `terminations`"):
        await _Runner(graph).values("lonely")


async def test_end_without_a_start_and_start_that_is_not_clear_are_refused() -> None:
    with pytest.raises(PromptError, match="has no Start Loop"):
        await _Runner({"end": _node("EndLoop", accumulate=False)}).values("end")
    graph = {
        "s1": _start(mode__num_iterations=2),
        "s2": _start(mode__num_iterations=3),
        "sum": _math("a + b", a=["s1", 0], b=["s2", 0]),
        "end": _node("EndLoop", output_value=["sum", 1], accumulate=True),
    }
    with pytest.raises(PromptError, match="parent_iteration"):
        await _Runner(graph).values("end")


async def test_loop_that_comes_to_too_many_nodes_is_refused() -> None:
    for count in (MAX_NODES, MAX_NODES + 1, 10**30):
        with pytest.raises(PromptError, match="are possible"):
            await _Runner(_doubling(mode__num_iterations=count)).values("end")


def test_iterations_are_taken_from_earlier_runs_only_if_asked() -> None:
    for name, option in (("StartLoop", "cache_iterations"), ("LoopIteration", "reuse_cache")):
        declaration = BUILTIN.get(name)
        assert declaration is not None
        assert declaration.is_changed is not None
        never = declaration.is_changed(None, {option: False})  # type: ignore[arg-type]
        assert never != never  # NaN is never what it was
        assert declaration.is_changed(None, {option: True}) == 0.0  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ["9", "nowhere"])
async def test_what_end_loop_becomes_cannot_be_used_without_one(end: str) -> None:
    declared = BUILTIN.get("LoopRun")
    assert declared is not None
    with pytest.raises(PromptError, match="no End Loop"):
        await declared.lower(FakeContext(), {"end": [end], "mode": ["simple"]})
