"""Lists, laziness, blocked values, coroutines and expansion, as users see them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from math import nan
from typing import Any

import pytest

from comfyserverless.control.execution.classes import OwnClasses
from comfyserverless.control.views import (
    NodeBlocked,
    NodeExecuted,
    NodeFinished,
    NodeOrigin,
    NodeStarted,
    RunStatus,
    RunSucceeded,
)
from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import NodeDeclaration
from comfyserverless.graph.lowering import Blocked, Items, LoweringContext, NodeResult
from comfyserverless.graph.plan import Link
from comfyserverless.graph.questions import Question, Tokens
from tests.support.execution import Bench, any_input, link, node_id, node_of
from tests.support.graph_prompts import Prompt, node

Benches = Callable[..., Bench]

MANY = node_of("Many", lambda values: NodeResult((Items(tuple(values)),)), "values", outputs="*[]")
ADD = node_of("Add", lambda a, b=0: a + b, "a", "b")
ECHO = node_of("Echo", lambda value=None: value, "value")
WHOLE = node_of("Whole", lambda value: f"{len(value)}:{value}", "value", input_is_list=True)


def many(*values: Any) -> dict[str, Any]:
    return node("Many", values={"__value__": list(values)})


async def test_node_runs_once_for_each_value_of_a_list_and_shorter_lists_repeat_their_last(
    bench_of: Benches,
) -> None:
    bench = bench_of(MANY, ADD)
    ran = await bench.run(
        {"1": many(1, 2, 3), "2": many(10, 20), "3": node("Add", a=link("1"), b=link("2")), "4": show("3")}
    )
    assert ran.shown("4") == ["11", "22", "23"], "one ui dict with the texts of all calls"
    assert ran.started == ["2", "1", "3", "4"]


async def test_node_that_takes_lists_runs_once_with_lists_of_everything(bench_of: Benches) -> None:
    bench = bench_of(MANY, WHOLE)
    ran = await bench.run(
        {
            "1": many(1, 2),
            "2": node("Whole", value=link("1")),
            "3": node("Whole", value=5),
            "4": show("2"),
            "5": show("3"),
        }
    )
    assert (ran.shown("4"), ran.shown("5")) == (["'2:[1, 2]'"], ["'1:[5]'"])


async def test_lists_of_several_calls_are_joined(bench_of: Benches) -> None:
    twice = node_of(
        "Twice", lambda value: NodeResult((Items((value, -value)), value)), "value", outputs="*[] *"
    )
    bench = bench_of(MANY, twice)
    prompt = {"1": many(1, 2), "2": node("Twice", value=link("1")), "3": show("2"), "4": show("2", 1)}
    ran = await bench.run(prompt)
    assert (ran.shown("3"), ran.shown("4")) == (["1", "-1", "2", "-2"], ["1", "2"])


async def test_empty_list_beside_others_is_an_index_error_that_names_the_input(bench_of: Benches) -> None:
    bench = bench_of(MANY, ADD)
    ran = await bench.run({"1": many(), "2": node("Add", a=1, b=link("1")), "3": show("2")})
    assert (ran.error.node, ran.error.exception_type) == ("2", "IndexError")
    assert "'b'" in ran.error.exception_message


async def test_node_whose_inputs_are_all_empty_is_called_without_arguments(bench_of: Benches) -> None:
    bench = bench_of(MANY, ECHO)
    ran = await bench.run({"1": many(), "2": node("Echo", value=link("1")), "3": show("2")})
    assert ran.shown("3") == ["None"]


async def test_output_that_was_not_given_is_none_for_who_reads_it(bench_of: Benches) -> None:
    short = node_of("Short", lambda: 1, outputs="* *")
    ran = await bench_of(short).run({"1": node("Short"), "2": show("1", 1)})
    assert ran.shown("2") == ["None"]


# -- laziness -------------------------------------------------------------------------------------


async def _choose(context: LoweringContext, calls: Sequence[Mapping[str, Value]]) -> Sequence[str]:
    wanted = [("on" if call["switch"] else "off") for call in calls]
    return [*wanted, "switch", 3]  # type: ignore[list-item]


SWITCH = node_of(
    "Switch",
    lambda switch, on=None, off=None: (on if switch else off, (on, off)),
    "switch",
    any_input("on", lazy=True),
    any_input("off", lazy=True),
    outputs="* *",
    check_lazy=_choose,
)


def show(source: str, slot: int = 0) -> dict[str, Any]:
    return node("Show", value=link(source, slot))


def switched(switch: Any) -> Prompt:
    return {
        "1": node("Echo", value="left"),
        "2": node("Echo", value="right"),
        "3": node("Switch", switch=switch, on=link("1"), off=link("2")),
        "4": show("3", 1),
    }


async def test_only_the_lazy_input_that_is_asked_for_is_evaluated(bench_of: Benches) -> None:
    bench = bench_of(ECHO, SWITCH)
    ran = await bench.run(switched(True))
    assert ran.shown("4") == ["('left', None)"]
    assert ran.started == ["3", "1", "3", "4"], "it is shown again after it has waited"
    assert [notice.is_again for notice in ran.of_type(NodeStarted)] == [False, False, True, False]
    assert [notice.node for notice in ran.of_type(NodeFinished)] == ["1", "3", "4"]
    assert ran.was_cached("2")
    other = await bench.run(switched(False))
    assert other.did_run("2")
    assert other.shown("4") == ["(None, 'right')"]


async def test_lazy_requests_of_all_mapped_calls_are_united(bench_of: Benches) -> None:
    bench = bench_of(ECHO, SWITCH, MANY)
    ran = await bench.run({**switched(link("5")), "5": many(True, False)})
    assert ran.did_run("1", "2")
    assert ran.shown("4") == ["('left', 'right')", "('left', 'right')"]


async def test_lazy_input_of_a_node_that_does_not_ask_is_none(bench_of: Benches) -> None:
    never = node_of("Never", lambda value: value, any_input("value", lazy=True))
    ran = await bench_of(ECHO, never).run(
        {"1": node("Echo", value=1), "2": node("Never", value=link("1")), "3": show("2")}
    )
    assert ran.shown("3") == ["None"]
    assert ran.was_cached("1")


@pytest.mark.parametrize(("given", "told"), [({}, "was not given"), ({"on": 5}, "")])
async def test_lazy_request_for_what_is_no_link_is_an_error_unless_it_is_there(
    bench_of: Benches, given: dict[str, Any], told: str
) -> None:
    ran = await bench_of(SWITCH).run({"1": node("Switch", switch=True, **given), "2": show("1")})
    if told:
        assert ran.error.node == "1"
        assert told in ran.error.exception_message
    else:
        assert ran.shown("2") == ["5"]


# -- blocked values -------------------------------------------------------------------------------


def block(message: str | None) -> NodeDeclaration:
    return node_of("Block", lambda value=None: NodeResult((value, Blocked(message))), "value", outputs="* *")


async def test_blocked_node_does_not_run_and_tells_once_why(bench_of: Benches) -> None:
    calls: list[Any] = []
    noted = node_of("Noted", lambda value: calls.append(value) or value, "value")
    bench = bench_of(block("no picture"), noted)
    ran = await bench.run(
        {
            "1": node("Block"),
            "2": node("Noted", value=link("1", 1)),
            "3": node("Noted", value=link("2")),
            "4": show("3"),
        }
    )
    assert calls == []
    assert [(each.node, each.message) for each in ran.of_type(NodeBlocked)] == [("2", "no picture")]
    assert ran.record.status is RunStatus.SUCCESS
    kinds = [type(notice) for notice in ran.notices if getattr(notice, "node", "") == "2"]
    assert kinds == [NodeStarted, NodeBlocked, NodeFinished]
    assert ran.of_type(NodeExecuted) == [], "who shows nothing is not shown"
    assert not any(isinstance(event, NodeBlocked) for event in ran.record.messages)
    again = await bench.run(
        {
            "1": node("Block"),
            "2": node("Noted", value=link("1", 1)),
            "3": node("Noted", value=link("2")),
            "4": show("3"),
        }
    )
    assert again.was_cached("1", "2", "3", "4")


async def test_block_without_a_message_is_silent(bench_of: Benches) -> None:
    ran = await bench_of(block(None)).run({"1": node("Block"), "2": show("1", 1)})
    assert ran.of_type(NodeBlocked) == []
    assert isinstance(ran.notices[-1], RunSucceeded)


async def test_blocked_value_among_others_holds_up_its_own_call_only(bench_of: Benches) -> None:
    some = node_of("Some", lambda: NodeResult((Items((1, Blocked(), 3)),)), outputs="*[]")
    bench = bench_of(some, ADD, WHOLE)
    ran = await bench.run(
        {
            "1": node("Some"),
            "2": node("Add", a=link("1"), b=1),
            "3": show("2"),
            "4": node("Whole", value=link("1")),
            "5": show("4"),
        }
    )
    assert ran.shown("3") == ["2", "4"]
    assert "5" not in ran.record.outputs, "a list with a blocked value is blocked as a whole"


# -- expansion ------------------------------------------------------------------------------------


def _count(n: Any) -> NodeResult:
    """Expand to a node of the same class with one less, and an addition."""
    if n == 0:
        return NodeResult((0,))
    prefix = f"c{n}."
    graph = {
        prefix + "1": node("Count", n=n - 1),
        prefix + "2": node("Add", a=[prefix + "1", 0], b=1),
    }
    return NodeResult((Link(node_id(prefix + "2"), 0),), None, graph)


COUNT = node_of("Count", _count, "n")


async def test_node_becomes_others_and_takes_their_result(bench_of: Benches) -> None:
    bench = bench_of(COUNT, ADD)
    ran = await bench.run({"1": node("Count", n=2), "2": show("1")})
    assert ran.shown("2") == ["2"]
    assert ran.started == ["1", "c2.1", "c1.1", "c1.2", "c2.2", "2"], "nobody is shown twice"
    origins = {notice.node: notice.origin for notice in ran.of_type(NodeStarted)}
    assert origins["1"] is None
    assert origins["c2.1"] == NodeOrigin(node_id("1"), node_id("1"), node_id("1"))
    assert origins["c1.2"] == NodeOrigin(node_id("1"), node_id("c2.1"), node_id("1"))
    assert [notice.node for notice in ran.of_type(NodeFinished)] == ["c1.1", "c1.2", "c2.1", "c2.2", "1", "2"]


async def test_second_run_does_not_expand_again_and_a_changed_one_uses_what_is_inside(
    bench_of: Benches,
) -> None:
    bench = bench_of(COUNT, ADD)
    await bench.run({"1": node("Count", n=3), "2": show("1")})
    again = await bench.run({"1": node("Count", n=3), "2": show("1")})
    assert again.started == []
    assert again.cached == ["1", "2"]
    more = await bench.run({"1": node("Count", n=4), "2": show("1")})
    assert more.started == ["1", "c4.1", "c4.2", "2"], "what is inside c4.1 is there already"
    assert more.shown("2") == ["4"]


async def test_added_nodes_are_kept_while_their_node_is_there_and_adds_them(bench_of: Benches) -> None:
    def fan(value: int) -> NodeResult:
        return NodeResult((Link(node_id(f"x{value}"), 0),), None, {f"x{value}": node("Echo", value=value)})

    bench = bench_of(node_of("Fan", fan, "value"), ECHO)
    await bench.run({"1": node("Fan", value=1), "2": show("1")})
    await bench.run({"1": node("Fan", value=2), "2": show("1")})
    assert len(bench.cache) == 3, "what it has added before is out of date"
    await bench.run({"1": node("Echo", value=5), "2": show("1")})
    assert len(bench.cache) == 2


async def test_a_thousand_nested_expansions_do_not_overflow(bench_of: Benches) -> None:
    ran = await bench_of(COUNT, ADD).run({"1": node("Count", n=1000), "2": show("1")})
    assert ran.shown("2") == ["1000"]


async def test_output_nodes_of_an_expansion_run_though_nothing_needs_them(bench_of: Benches) -> None:
    graph = {"x.1": node("Echo", value=7), "x.2": node("Show", value=["x.1", 0]), "x.3": node("Echo", value=8)}
    grown = node_of("Grown", lambda: NodeResult((1,), {"text": ["at once"]}, graph))
    ran = await bench_of(grown, ECHO).run({"1": node("Grown"), "2": show("1")})
    assert ran.shown("x.2") == ["7"]
    assert ran.was_cached("x.3"), "nothing needs it"
    assert ran.record.origins[node_id("x.2")].display == "1"
    first = next(notice for notice in ran.notices if isinstance(notice, NodeExecuted))
    assert (first.node, first.ui) == ("1", {"text": ["at once"]}), "it is shown when it expands"
    assert ran.shown("1") == ["at once"], "and not again"


async def test_display_of_an_added_node_can_be_another_one(bench_of: Benches) -> None:
    graph = {"x.1": {**node("Echo", value=7), "override_display_id": "2"}}
    grown = node_of("Grown", lambda: NodeResult((Link(node_id("x.1"), 0),), None, graph))
    ran = await bench_of(grown, ECHO).run({"1": node("Grown"), "2": show("1")})
    origin = next(notice.origin for notice in ran.of_type(NodeStarted) if notice.node == "x.1")
    assert origin == NodeOrigin(display=node_id("2"), parent=node_id("1"), real=node_id("1"))


@pytest.mark.parametrize(
    ("graph", "told"),
    [
        ({"2": {"class_type": "Echo", "inputs": {}}}, "'2', an id that another one has"),
        ({"x": {"class_type": "Nope", "inputs": {}}}, "class 'Nope', which is not here"),
        ({"x": {"inputs": {}}}, "which is no node"),
    ],
)
async def test_bad_expansion_is_an_error_of_the_node(bench_of: Benches, graph: Any, told: str) -> None:
    grown = node_of("Grown", lambda: NodeResult((1,), None, graph))
    ran = await bench_of(grown, ECHO).run({"1": node("Grown"), "2": show("1")})
    assert ran.error.node == "1"
    assert told in ran.error.exception_message


async def test_error_inside_an_expansion_is_shown_at_the_submitted_node(bench_of: Benches) -> None:
    def fail() -> None:
        raise ValueError("inside")

    graph = {"x.1": node("Fail")}
    grown = node_of("Grown", lambda: NodeResult((Link(node_id("x.1"), 0),), None, graph))
    ran = await bench_of(grown, node_of("Fail", fail)).run({"1": node("Grown"), "2": show("1")})
    assert (ran.error.node, ran.error.node_type) == ("1", "Grown")
    assert ran.error.exception_type == "ValueError"


async def test_nodes_that_wait_for_each_other_are_a_cycle_at_the_expanded_node(bench_of: Benches) -> None:
    graph = {"x.1": node("Echo", value=["1", 0])}
    grown = node_of("Grown", lambda: NodeResult((Link(node_id("x.1"), 0),), None, graph))
    ran = await bench_of(grown, ECHO).run({"1": node("Grown"), "2": show("1")})
    assert (ran.error.node, ran.error.exception_type) == ("1", "graph.DependencyCycleError")


async def test_raw_link_is_given_as_it_is_after_its_source_has_run(bench_of: Benches) -> None:
    raw = node_of("Raw", lambda value: str(value), any_input("value", rawLink=True))
    ran = await bench_of(raw, ECHO).run(
        {"1": node("Echo", value=1), "2": node("Raw", value=link("1")), "3": show("2")}
    )
    assert ran.shown("3") == [repr("['1', 0]")]
    assert ran.started == ["1", "2", "3"]


# -- coroutines -----------------------------------------------------------------------------------


async def test_other_nodes_run_while_a_coroutine_goes_on(bench_of: Benches) -> None:
    gate = asyncio.Event()

    async def wait(value: Any) -> Any:
        await gate.wait()
        return value

    def open_gate() -> int:
        gate.set()
        return 2

    slow = node_of("Slow", wait, "value", is_async=True)
    opener = node_of("Opener", open_gate, output_node=True)
    ran = await bench_of(slow, opener).run(
        {
            "1": node("Slow", value=1),
            "2": node("Slow", value=5),
            "3": show("1"),
            "4": show("2"),
            "5": node("Opener"),
        }
    )
    assert ran.started == ["5", "1", "2", "3", "4"] or set(ran.started[:2]) == {"1", "2"}
    assert sorted(ran.started) == ["1", "2", "3", "4", "5"], "each is shown once"
    assert ran.shown("4") == ["5"]


async def test_first_coroutine_that_fails_fails_its_node(bench_of: Benches) -> None:
    async def fail() -> None:
        raise ValueError("later")

    bad = node_of("Bad", fail, is_async=True)
    ran = await bench_of(bad).run({"1": node("Bad"), "2": show("1")})
    assert (ran.error.node, ran.error.exception_type) == ("1", "ValueError")


async def test_interrupt_ends_what_waits_at_once(bench_of: Benches) -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    bench = bench_of(node_of("Stuck", wait, is_async=True))
    ran, task = bench.start({"1": node("Stuck"), "2": show("1")})
    await asyncio.sleep(0.01)
    bench.runs[0].interrupt()
    await asyncio.wait_for(task, 60)
    assert ran.record.status is RunStatus.INTERRUPTED
    assert len(asyncio.all_tasks()) == 1


async def test_interrupt_ends_the_wait_for_change_tokens(bench_of: Benches) -> None:
    class Silent(OwnClasses):
        async def tokens(self, questions: Sequence[Question]) -> Tokens:
            await asyncio.Event().wait()
            raise AssertionError

    bench = bench_of(node_of("Told", lambda: 1, has_remote_token=True))
    ran, task = bench.start({"1": node("Told"), "2": show("1")}, classes=Silent(bench.registry))
    await asyncio.sleep(0.01)
    assert not task.done()
    bench.runs[0].interrupt()
    await asyncio.wait_for(task, 60)
    assert ran.record.status is RunStatus.INTERRUPTED
    assert ran.started == []


async def test_tokens_are_asked_for_also_of_nodes_that_an_expansion_adds(bench_of: Benches) -> None:
    asked: list[list[str]] = []

    class Telling(OwnClasses):
        async def tokens(self, questions: Sequence[Question]) -> Tokens:
            asked.append([each.node for each in questions])
            return {each.node: nan if each.inputs.get("value") else 1 for each in questions}

    told = node_of("Told", lambda value: value, "value", has_remote_token=True)
    graph = {"x.1": node("Told", value=0), "x.2": node("Told", value=5)}
    results = (Link(node_id("x.1"), 0), Link(node_id("x.2"), 0))
    grown = node_of("Grown", lambda: NodeResult(results, None, graph), outputs="* *", is_changed=lambda *_: nan)
    bench = bench_of(told, grown)
    prompt = {"1": node("Grown"), "2": show("1"), "3": show("1", 1)}
    for again in range(2):
        ran, task = bench.start(prompt, classes=Telling(bench.registry))
        await asyncio.wait_for(task, 60)
        assert ran.did_run("1", "x.2")
        assert ran.was_cached("x.1") is bool(again), "its token is equal"
    assert asked == [["x.1", "x.2"]] * 2


# -- equal nodes and caches -----------------------------------------------------------------------


async def test_equal_nodes_share_a_result_whichever_comes_first(bench_of: Benches) -> None:
    made: list[Any] = []
    gated = node_of("Gated", lambda value: made.append(value) or value, "value", output_node=True)
    bench = bench_of(gated, ECHO, ADD)
    prompt = {
        "1": node("Gated", value=1),
        "2": node("Gated", value=1),
        "3": node("Add", a=link("1"), b=0),
        "4": node("Add", a=link("3"), b=1),
        "5": show("4"),
        "6": show("2"),
    }
    ran = await bench.run(prompt)
    assert made == [1]
    assert (ran.shown("5"), ran.shown("6")) == (["2"], ["1"])
    assert len({"1", "2"} & set(ran.started)) == 1


async def test_node_that_expands_to_an_equal_one_goes_on_until_it_is_stopped(bench_of: Benches) -> None:
    counter = iter(range(1000))

    def again() -> NodeResult:
        n = next(counter)
        if n == 5:
            return NodeResult((n,))
        return NodeResult((Link(node_id(f"a{n}"), 0),), None, {f"a{n}": node("Again")})

    ran = await bench_of(node_of("Again", again)).run({"1": node("Again"), "2": show("1")})
    assert ran.shown("2") == ["5"]


@pytest.mark.parametrize("mode", ["none", "lru"])
async def test_other_cache_modes_run_lists_and_expansions_too(bench_of: Benches, mode: str) -> None:
    bench = bench_of(COUNT, ADD, MANY, mode=mode, limit=100 if mode == "lru" else 0)
    prompt = {
        "1": many(1, 2),
        "2": node("Add", a=link("1")),
        "3": show("2"),
        "4": node("Count", n=3),
        "5": show("4"),
    }
    for index in range(2):
        ran = await bench.run(prompt)
        assert (ran.shown("3"), ran.shown("5")) == (["1", "2"], ["3"])
        assert (ran.started == []) is (mode == "lru" and index == 1)
