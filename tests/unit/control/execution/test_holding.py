"""What a run holds of results while it goes on, and that nothing stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from comfyserverless.control.views import NodePreview, NodeProgress, NodeText, RunStatus
from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import NodeDeclaration
from comfyserverless.graph.lowering import Blocked, Items, LoweringContext, NodeResult, StepProgress
from comfyserverless.graph.plan import Link
from tests.support.execution import WORKER, Bench, any_input, link, node_id, node_of
from tests.support.graph_prompts import Prompt, node

Benches = Callable[..., Bench]

NOTHING = {"calls": 0, "results": 0, "tensors": 0, "publications": 0}


def emitting(name: str, function: str, *inputs: str, **more: Any) -> NodeDeclaration:
    """Return a class that emits two invocations for each call, and needs the last one only."""

    async def lower(context: LoweringContext, given: Mapping[str, Value]) -> NodeResult:
        first = context.emit(function, progress=StepProgress(1, 2), **_ports(function, given))
        second = context.emit("image.invert", progress=StepProgress(2, 2), images=first.out("images"))
        context.keep_only(second)
        return NodeResult((second.out("images"),))

    made = node_of(name, lambda: None, *inputs, **more)
    return NodeDeclaration(**{**{f: getattr(made, f) for f in made.__slots__}, "lower": lower})


def _ports(function: str, given: Mapping[str, Value]) -> dict[str, Value]:
    if function == "image.invert":
        return {"images": given["image"]}
    return {"width": given["width"], "height": 8, "batch_size": 1, "color": 0}


SIZES = node_of("Sizes", lambda: NodeResult((Items((8, 16, 24)),)), outputs="*[]")
EMPTY = emitting("Empty", "image.empty", "width")
INVERT = emitting("Invert", "image.invert", "image")
PROMPT: Prompt = {
    "1": node("Sizes"),
    "2": node("Empty", width=link("1")),
    "3": node("Invert", image=link("2")),
    "4": node("Show", value=link("3")),
}


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_every_call_of_a_mapped_node_keeps_its_own_result(bench_of: Benches) -> None:
    bench = bench_of(SIZES, EMPTY, INVERT)
    ran = await bench.run(PROMPT)
    assert len(ran.shown("4")) == 3
    names = [call.invocation for call in bench.calls]
    assert len(names) == len(set(names)) == 12
    assert bench.dispatcher.counts()["results"] == 6, "the last ones of each call of both nodes, cached"
    bench.forget_results()
    await settle()
    assert bench.dispatcher.counts() == NOTHING


async def test_progress_repeats_for_each_call(bench_of: Benches) -> None:
    ran = await bench_of(SIZES, EMPTY, INVERT).run(PROMPT)
    steps = [(each.value, each.maximum) for each in ran.of_type(NodeProgress) if each.node == "2"]
    assert sorted(steps) == [(1, 2)] * 3 + [(2, 2)] * 3


@pytest.mark.parametrize("function", ["image.empty", "image.invert"])
async def test_interrupt_while_something_is_computed_leaves_nothing_behind(
    bench_of: Benches, function: str
) -> None:
    bench = bench_of(SIZES, EMPTY, INVERT, holds=frozenset({function}))
    ran, task = bench.start(PROMPT)
    await settle()
    bench.runs[0].interrupt()
    await asyncio.wait_for(task, 60)
    assert ran.record.status is RunStatus.INTERRUPTED
    bench.forget_results()
    await settle()
    assert bench.dispatcher.counts() == NOTHING


async def test_interrupt_inside_an_expansion_leaves_nothing_behind(bench_of: Benches) -> None:
    bench = bench_of(SIZES, EMPTY, INVERT, grown(), holds=frozenset({"image.invert"}))
    ran, task = bench.start(
        {"0": node("Empty", width=8), "1": node("Grown", image=link("0")), "4": node("Show", value=link("1"))}
    )
    await settle()
    for _ in range(2):  # of node 0, and of node 1 itself
        bench.answer(bench.waiting.pop())
        await settle()
    assert ran.started[-1] == "g.1"
    bench.runs[0].interrupt()
    await asyncio.wait_for(task, 60)
    bench.forget_results()
    await settle()
    assert bench.dispatcher.counts() == NOTHING


def grown() -> NodeDeclaration:
    """Return a class that expands to inversions of a value of its own, which only it names."""

    async def lower(context: LoweringContext, given: Mapping[str, Value]) -> NodeResult:
        made = context.emit("image.invert", images=given["image"])
        await context.result(made.out("images"))
        graph = {"g.1": node("Invert", image=made.out("images")), "g.2": node("Invert", image=["g.1", 0])}
        return NodeResult((Link(node_id("g.2"), 0),), None, graph)

    made = node_of("Grown", lambda: None, "image")
    return NodeDeclaration(**{**{f: getattr(made, f) for f in made.__slots__}, "lower": lower})


async def test_tensor_that_only_an_expansion_names_is_held_until_it_is_used(bench_of: Benches) -> None:
    bench = bench_of(EMPTY, INVERT, grown())
    prompt = {
        "0": node("Empty", width=8),
        "1": node("Grown", image=link("0")),
        "4": node("Show", value=link("1")),
    }
    ran = await bench.run(prompt)
    assert ran.record.status is RunStatus.SUCCESS
    again = await bench.run(prompt)
    assert again.started == [], "the parent is cached with the result of what it became"
    bench.forget_results()
    await settle()
    assert bench.dispatcher.counts() == NOTHING


async def test_result_that_was_given_back_is_made_again_for_a_node_that_came_later(bench_of: Benches) -> None:
    gate = asyncio.Event()

    async def wait(value: Any) -> Any:
        await gate.wait()
        graph = {"late": node("Invert", image=["0", 0])}
        return NodeResult((Link(node_id("late"), 0),), None, graph)

    slow = node_of("Slow", wait, "value", is_async=True)
    bench = bench_of(EMPTY, INVERT, slow)
    ran, task = bench.start(
        {
            "0": node("Empty", width=8),
            "1": node("Show", value=link("0")),
            "2": node("Slow", value=1),
            "3": node("Show", value=link("2")),
        }
    )
    await settle()
    before = len(bench.calls)
    assert bench.runs[0].let_go(WORKER), "nobody names what node 0 has made"
    gate.set()
    await asyncio.wait_for(task, 60)
    assert ran.record.status is RunStatus.SUCCESS
    made = [call.function for call in bench.calls[before:]]
    assert made == ["image.empty", "image.invert", "image.invert", "image.invert"]
    assert ran.started.count("0") == 1, "nobody is told of it"
    bench.forget_results()
    await settle()
    assert bench.dispatcher.counts() == NOTHING


async def test_what_a_lazy_branch_may_need_is_not_given_back(bench_of: Benches) -> None:
    gate = asyncio.Event()

    async def ask(context: LoweringContext, calls: Any) -> list[str]:
        await gate.wait()
        return ["on"]

    switch = node_of("Switch", lambda on=None: on, any_input("on", lazy=True), check_lazy=ask)
    bench = bench_of(EMPTY, INVERT, switch)
    ran, task = bench.start(
        {
            "0": node("Empty", width=8),
            "9": node("Show", value=link("0")),
            "1": node("Invert", image=link("0")),
            "2": node("Switch", on=link("1")),
            "3": node("Show", value=link("2")),
        }
    )
    await settle()
    assert not bench.runs[0].let_go(WORKER)
    gate.set()
    await asyncio.wait_for(task, 60)
    assert ran.did_run("1")


async def test_error_shows_the_values_of_inputs_as_they_are(bench_of: Benches) -> None:
    def fail(**inputs: Any) -> None:
        raise ValueError("no")

    bench = bench_of(SIZES, EMPTY, node_of("Fail", fail, "a", "b", "c", "d"))
    ran = await bench.run(
        {
            "1": node("Sizes"),
            "2": node("Empty", width=8),
            "3": node("Fail", a=link("1"), b=link("2"), c="text", d={"__value__": [1, None]}),
            "4": node("Show", value=link("3")),
        }
    )
    inputs = dict(ran.error.current_inputs)
    assert inputs.pop("b") in (["tensor of float32 [1, 8, 8, 3]"], ["(not known yet)"])
    assert inputs == {"a": [8, 16, 24], "c": ["text"], "d": ["[1, None]"]}
    assert sorted(ran.error.executed) == sorted(ran.error.current_outputs) == ["1", "2"]
    assert ran.error.traceback, "an error of a node's own code shows where"


async def test_blocked_value_is_shown_by_the_name_that_packs_know(bench_of: Benches) -> None:
    def fail(value: Any) -> None:
        raise ValueError("no")

    some = node_of("Some", lambda: NodeResult((Items((Blocked(), 3)),)), outputs="*[]")
    ran = await bench_of(some, node_of("Fail", fail, "value")).run(
        {"1": node("Some"), "2": node("Fail", value=link("1")), "3": node("Show", value=link("2"))}
    )
    assert ran.error.current_inputs == {"value": ["<ExecutionBlocker>", 3]}


async def test_node_shows_progress_pictures_and_texts_of_its_own_and_of_others(bench_of: Benches) -> None:
    async def lower(context: LoweringContext, given: Mapping[str, Value]) -> NodeResult:
        context.report(StepProgress(1, 4), b"png")
        context.report(StepProgress(2, 4), None, node_id("9"))
        context.show_text("half")
        return NodeResult((1,))

    made = node_of("Told", lambda: None, output_node=True)
    told = NodeDeclaration(**{**{f: getattr(made, f) for f in made.__slots__}, "lower": lower})
    ran = await bench_of(told).run({"1": node("Told"), "9": node("Show", value=1)}, ["1"])
    assert [(each.node, each.value) for each in ran.of_type(NodeProgress)] == [("1", 1), ("9", 2)]
    assert [(each.node, each.jpeg) for each in ran.of_type(NodePreview)] == [("1", b"png")]
    assert [(each.node, each.text) for each in ran.of_type(NodeText)] == [("1", "half")]


async def test_node_that_is_not_idempotent_is_not_shared(bench_of: Benches) -> None:
    made: list[Any] = []
    once = node_of("Once", lambda value: made.append(value) or len(made), "value", not_idempotent=True)
    bench = bench_of(once)
    prompt = {
        "1": node("Once", value=1),
        "2": node("Once", value=1),
        "3": node("Show", value=link("1")),
        "4": node("Show", value=link("2")),
    }
    await bench.run(prompt)
    assert made == [1, 1]
    assert (await bench.run(prompt)).started == [], "but each is cached"


async def test_link_of_an_undeclared_input_is_an_argument_where_the_class_takes_it(bench_of: Benches) -> None:
    one = node_of("One", lambda: 1)
    loose = node_of("Loose", lambda **given: sorted(given.items()), takes_undeclared_links=True)
    strict = node_of("Strict", lambda **given: sorted(given.items()))
    ran = await bench_of(one, loose, strict).run(
        {
            "1": node("One"),
            "2": node("Loose", extra=link("1"), constant=5),
            "3": node("Strict", extra=link("1"), constant=5),
            "4": node("Show", value=link("2")),
            "5": node("Show", value=link("3")),
            "6": node("Loose", extra=link("gone")),
            "7": node("Show", value=link("6")),
        },
        ["4", "5"],
    )
    assert ran.shown("4") == ["[('extra', 1)]"]
    assert ran.shown("5") == ["[]"]


async def test_undeclared_link_to_nowhere_is_an_error_of_its_node(bench_of: Benches) -> None:
    loose = node_of("Loose", lambda **given: 1, takes_undeclared_links=True)
    ran = await bench_of(loose).run(
        {"6": node("Loose", extra=link("gone")), "7": node("Show", value=link("6"))}
    )
    assert ran.error.node == "6"
    assert "'extra'" in ran.error.exception_message
    assert "'gone'" in ran.error.exception_message


async def test_only_the_chosen_outputs_run(bench_of: Benches) -> None:
    ran = await bench_of().run({"1": node("Show", value=1), "2": node("Show", value=2)}, ["2"])
    assert ran.started == ["2"]


async def test_independent_work_begins_at_once_and_nodes_of_packs_and_outputs_in_their_turn(
    bench_of: Benches,
) -> None:
    asked: list[Any] = []

    async def lower_calls(context: LoweringContext, calls: Sequence[Mapping[str, Value]]) -> list[NodeResult]:
        asked.append(calls)
        return [NodeResult((call["value"],)) for call in calls]

    packed = node_of("Packed", lambda value: value, "value", lower_calls=lower_calls)
    bench = bench_of(EMPTY, INVERT, packed, holds=frozenset({"image.empty"}))
    prompt = {
        "1": node("Empty", width=8),
        "2": node("Empty", width=16),
        "3": node("Packed", value=link("1")),
        "4": node("Invert", image=link("3")),
        "5": node("Show", value=link("4")),
        "6": node("Show", value=link("2")),
    }
    ran, task = bench.start(prompt)
    await settle()
    assert sorted(call.invocation[-3:] for call in bench.waiting) == ["1/0", "2/0"]
    assert (asked, len(ran.started)) == ([], 1)
    while bench.waiting:
        bench.answer(bench.waiting.pop())
        await settle()
    await asyncio.wait_for(task, 60)
    assert len(asked) == 1
    assert ran.record.status is RunStatus.SUCCESS
