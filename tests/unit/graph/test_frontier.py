"""The order of nodes: ComfyUI's preferences, cached nodes, and laws for any graph."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyserverless.core.errors import InvariantError
from comfyserverless.core.ids import NodeId
from comfyserverless.graph.declaration import InputSpec
from comfyserverless.graph.frontier import Frontier
from comfyserverless.graph.plan import Link, Plan
from comfyserverless.graph.validation import validate
from comfyserverless.nodes.specs import socket
from tests.support.costs import is_linear
from tests.support.graph_fakes import RECORDED_CLASSES, FakeCatalog, node_class, with_builtin
from tests.support.graph_prompts import Prompt, image_chain, node, text_to_image

MIX = node_class("Mix", socket("a", "IMAGE"), socket("b", "IMAGE"))
CLASSES = with_builtin(*RECORDED_CLASSES, MIX)
EMPTY = node("EmptyImage", width=8, height=8, batch_size=1, color=0)


def plan_of(prompt: Prompt) -> Plan:
    plan = validate(prompt, CLASSES, FakeCatalog()).plan
    assert plan is not None
    return plan


def run(frontier: Frontier) -> list[NodeId]:
    order = []
    while (node_id := frontier.next()) is not None:
        order.append(node_id)
        frontier.complete(node_id)
        frontier.validate()
    assert frontier.is_finished()
    return order


def save(source: str) -> dict[str, object]:
    return node("SaveImage", images=[source, 0], filename_prefix="x")


def test_output_node_goes_before_everything_else_that_is_ready() -> None:
    plan = plan_of({"a": EMPTY, "b": EMPTY, "s": save("a"), "t": save("b")})
    assert run(Frontier(plan)) == ["a", "s", "b", "t"]


def test_node_that_feeds_an_output_goes_before_one_two_steps_away() -> None:
    far = {"f": EMPTY, "i": node("ImageInvert", image=["f", 0]), "s": save("i")}
    near = {"n": EMPTY, "t": save("n")}
    assert run(Frontier(plan_of(far | near))) == ["n", "t", "f", "i", "s"]


def test_nodes_that_no_target_needs_are_not_run() -> None:
    plan = plan_of({"a": EMPTY, "s": save("a"), "u": EMPTY, "v": node("ImageInvert", image=["u", 0])})
    assert Frontier(plan).needed() == ("s", "a")


def test_cached_node_does_not_pull_in_what_is_before_it() -> None:
    plan = plan_of(text_to_image())
    assert run(Frontier(plan, {NodeId("3")})) == ["4", "8", "9"]
    assert run(Frontier(plan, {NodeId("8")})) == ["9"]


def test_cached_target_is_handed_out_alone_to_be_shown_again() -> None:
    frontier = Frontier(plan_of(text_to_image()), {NodeId("9")})
    assert frontier.needed() == ("9",)
    assert run(frontier) == ["9"]


def test_node_used_twice_by_one_consumer_is_waited_for_once() -> None:
    plan = plan_of({"a": EMPTY, "m": node("Mix", a=["a", 0], b=["a", 0]), "s": save("m")})
    assert run(Frontier(plan)) == ["a", "m", "s"]


def test_ready_nodes_are_handed_out_side_by_side_and_only_once() -> None:
    frontier = Frontier(
        plan_of({"a": EMPTY, "b": EMPTY, "m": node("Mix", a=["a", 0], b=["b", 0]), "s": save("m")})
    )
    first, second = frontier.next(), frontier.next()
    assert {first, second} == {"a", "b"}
    assert frontier.next() is None
    assert not frontier.is_finished()
    frontier.complete(NodeId("a"))
    assert frontier.next() is None
    frontier.complete(NodeId("b"))
    assert frontier.next() == "m"


@pytest.mark.parametrize("node_id", ["s", "a", "unknown"])
def test_completing_a_node_that_does_not_run_is_a_broken_law(node_id: str) -> None:
    frontier = Frontier(plan_of({"a": EMPTY, "s": save("a")}))
    if node_id == "a":
        frontier.next()
        frontier.complete(NodeId("a"))
    with pytest.raises(InvariantError, match=node_id):
        frontier.complete(NodeId(node_id))


def test_ten_thousand_nodes_are_ordered_in_ten_times_the_time_of_a_thousand() -> None:
    def chain(size: int) -> Frontier:
        return Frontier(plan_of(image_chain(size)))

    assert is_linear(chain, run_without_validation, 10_000)
    order = run_without_validation(chain(10_000))
    assert order == ["0", *map(str, range(1, 10_001)), "save"]


def run_without_validation(frontier: Frontier) -> list[NodeId]:
    order = []
    while (node_id := frontier.next()) is not None:
        order.append(node_id)
        frontier.complete(node_id)
    return order


@st.composite
def _graphs(draw: st.DrawFn) -> Prompt:
    """Return an acyclic graph of mixing nodes with some outputs, its nodes in any order."""
    size = draw(st.integers(1, 12))
    prompt: Prompt = {"n0": EMPTY}
    for i in range(1, size):
        sources = [f"n{draw(st.integers(0, i - 1))}" for _ in range(2)]
        prompt[f"n{i}"] = node("Mix", a=[sources[0], 0], b=[sources[1], 0])
    for i in draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=3, unique=True)):
        prompt[f"s{i}"] = save(f"n{i}")
    return {key: prompt[key] for key in draw(st.permutations(sorted(prompt)))}


@settings(max_examples=100, deadline=None)
@given(_graphs(), st.data())
def test_every_needed_node_runs_once_after_all_its_sources(prompt: Prompt, data: st.DataObject) -> None:
    plan = plan_of(prompt)
    done = frozenset(data.draw(st.lists(st.sampled_from(sorted(plan.nodes)), max_size=4)))
    frontier = Frontier(plan, done)
    needed = frontier.needed()
    order = run(frontier)
    assert sorted(order) == sorted(needed)
    seen = set(done)
    for node_id in order:
        sources = {value.source for value in plan.nodes[node_id].inputs.values() if isinstance(value, Link)}
        assert node_id in done or sources <= seen
        seen.add(node_id)
    assert set(plan.targets) <= set(order)
    assert not set(order) & (done - set(plan.targets))


def test_node_that_waits_for_more_is_handed_out_again_after_it() -> None:
    lazy = node_class("Lazy", InputSpec("a", "IMAGE", {"lazy": True}), InputSpec("b", "IMAGE"))
    plan = validate(
        {"a": EMPTY, "b": EMPTY, "m": node("Lazy", a=["a", 0], b=["b", 0]), "s": save("m")},
        with_builtin(lazy),
        FakeCatalog(),
    ).plan
    assert plan is not None
    frontier = Frontier(plan)
    assert frontier.needed() == ("s", "m", "b"), "a lazy link pulls in nothing"
    order = [frontier.next()]
    frontier.complete(NodeId("b"))
    order.append(frontier.next())
    assert frontier.wait_for(NodeId("m"), [NodeId("a"), NodeId("b")]) == ["a"]
    frontier.validate()
    order += run(frontier)
    assert order == ["b", "m", "a", "m", "s"]


def test_node_that_goes_on_by_itself_lets_others_pass() -> None:
    frontier = Frontier(plan_of({"a": EMPTY, "b": EMPTY, "s": save("a"), "t": save("b")}))
    assert frontier.next() == "a"
    frontier.set_aside(NodeId("a"))
    assert frontier.next() == "b"
    frontier.complete(NodeId("b"))
    assert frontier.next() == "t"
    frontier.complete(NodeId("t"))
    assert (frontier.next(), frontier.is_finished(), frontier.stuck()) == (None, False, [])
    frontier.bring_back(NodeId("a"))
    assert run(frontier) == ["a", "s"]


def test_coroutine_goes_before_what_feeds_an_output() -> None:
    slow = node_class("Slow", is_async=True)
    plan = validate(
        {
            "a": EMPTY,
            "s": save("a"),
            "z": node("Slow"),
            "m": node("Mix", a=["z", 0], b=["a", 0]),
            "t": save("m"),
        },
        with_builtin(MIX, slow),
        FakeCatalog(),
    ).plan
    assert plan is not None
    assert run(Frontier(plan))[0] == "z"


def test_nodes_that_wait_for_each_other_are_named_without_those_behind_them() -> None:
    frontier = Frontier(plan_of({"a": EMPTY, "m": node("Mix", a=["a", 0], b=["a", 0]), "s": save("m")}))
    assert frontier.next() == "a"
    frontier.wait_for(NodeId("a"), [NodeId("m")])
    assert (frontier.next(), frontier.is_finished()) == (None, False)
    assert frontier.stuck() == ["m", "a"]


def test_rank_of_a_ready_node_rises_with_an_output_that_is_added() -> None:
    plan = plan_of(
        {"a": EMPTY, "s": save("a"), "b": EMPTY, "i": node("ImageInvert", image=["b", 0]), "t": save("i")}
        | {"c": EMPTY, "u": save("c")}
    )
    growing = Plan(plan.nodes, (NodeId("s"), NodeId("i")), plan.prompt)
    frontier = Frontier(growing)
    assert frontier.add([NodeId("t")]) == ["t"]
    frontier.validate()
    assert run(frontier) == ["a", "s", "b", "i", "t"]
