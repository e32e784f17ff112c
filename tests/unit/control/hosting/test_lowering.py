"""Nodes of packs, lowered to one invocation each."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from comfyserverless.control.hosting.declarations import declaration_of
from comfyserverless.control.hosting.lowering import PackNode
from comfyserverless.core.hosting import InputInfo, NodeInfo, OutputInfo, ValidatorInfo
from comfyserverless.core.ids import InvocationId, NodeId, TensorId, WorkerId
from comfyserverless.core.values import FileRef, ModelRef, ObjectRef, Output, Value
from comfyserverless.graph.lowering import Blocked, Items, LoweringContext
from comfyserverless.graph.plan import Link
from tests.support.graph_fakes import FakeContext, tensor

INFO = NodeInfo(
    name="Stub",
    inputs=(
        InputInfo("a", "INT", {"min": 0}),
        InputInfo("mode", ["x", "y"], {}, "optional"),
        InputInfo("any", "*", {}, "optional", matches_any=True),
    ),
    outputs=(OutputInfo("IMAGE"), OutputInfo("INT", is_list=True)),
    hidden={"prompt": "PROMPT"},
    info={"python_module": "custom_nodes.p", "display_name": "A stub"},
    validator=ValidatorInfo(("a",), takes_types=True),
    has_change_token=True,
    has_lazy_check=True,
)
ANSWER: dict[str, Any] = {"result": [], "ui": None, "expand": None, "blocked": None}
EMITTED = InvocationId("pack.call#0")


class Scopes:
    """Note whose calls run."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @contextmanager
    def opened(self, invocation: InvocationId, context: LoweringContext) -> Iterator[None]:
        self.events.append(f"+{invocation}")
        yield
        self.events.append(f"-{invocation}")

    async def answer_of(self, answers: Awaitable[Value]) -> Value:
        return await answers

    def places(self, context: LoweringContext) -> dict[str, str]:
        return {"input": "/in"}


def lowered(*answers: Mapping[str, Any]) -> tuple[PackNode, FakeContext, Scopes]:
    scopes = Scopes()
    context = FakeContext(results={"pack.call": {"answers": list(answers)}})
    return PackNode(INFO, scopes), context, scopes


async def test_all_calls_of_a_node_are_one_invocation() -> None:
    node, context, scopes = lowered({**ANSWER, "result": [1, [2, 3]]}, {**ANSWER, "ui": {"text": ["a"]}})
    results = await node.lower_calls(context, [{"a": 1}, {"a": 2}])
    (call,) = context.calls
    assert call.inputs["calls"] == [{"a": 1}, {"a": 2}]
    assert call.inputs["node"] == {"id": "9", "class_type": "Stub", "python_module": "custom_nodes.p"}
    assert call.inputs["about"]["parts"] == {"graph": True}
    assert "X" not in str(call.inputs["about"])  # the graph itself is asked for, once for all calls
    assert call.inputs["about"]["places"] == {"input": "/in"}
    assert scopes.events == [f"+{EMITTED}", f"-{EMITTED}"]
    assert results[0].outputs == (1, Items((2, 3)))
    assert results[1].ui == {"text": ["a"]}


async def test_what_takes_up_room_is_named_by_its_invocation_and_the_rest_is_there() -> None:
    model = ModelRef(FileRef("/m"))
    held = ObjectRef(TensorId("o1"), WorkerId("host.0"), "x.Y")
    value = {"samples": tensor("t", 1), "model": model, "more": [held, 3]}
    node, context, _ = lowered({**ANSWER, "result": [value, [tensor("u", 1)]]})
    (result,) = await node.lower_calls(context, [{}])
    at = (0, "result", 0)
    assert result.outputs[0] == {
        "samples": Output(EMITTED, "answers", (*at, "samples")),
        "model": model,
        "more": [Output(EMITTED, "answers", (*at, "more", 0)), 3],
    }
    assert result.outputs[1] == Items((Output(EMITTED, "answers", (0, "result", 1, 0)),))


async def test_blocked_values_and_whole_results() -> None:
    whole = {**ANSWER, "blocked": {"message": "no"}}
    part = {**ANSWER, "result": [{"__blocked__": None}, [1, {"__blocked__": "x"}]]}
    node, context, _ = lowered(whole, part)
    first, second = await node.lower_calls(context, [{}, {}])
    assert first.outputs == (Blocked("no"), Blocked("no"))
    assert second.outputs == (Blocked(None), Items((1, Blocked("x"))))


async def test_links_belong_to_an_expansion() -> None:
    graph = {"9.0.0.1": {"class_type": "X", "inputs": {"image": tensor("t", 1), "a": ["1", 0]}}}
    with_graph = {**ANSWER, "result": [{"__link__": ["9.0.0.1", 1]}], "expand": graph}
    without = {**ANSWER, "result": [{"__link__": ["9.0.0.1", 1]}]}
    node, context, _ = lowered(with_graph, without)
    first, second = await node.lower_calls(context, [{}, {}])
    assert first.outputs == (Link(NodeId("9.0.0.1"), 1),)
    assert first.expand is not None
    inputs = first.expand["9.0.0.1"]["inputs"]
    assert inputs == {
        "image": Output(EMITTED, "answers", (0, "expand", "9.0.0.1", "inputs", "image")),
        "a": ["1", 0],
    }
    assert second.outputs == ({"__link__": ["9.0.0.1", 1]},)


async def test_lazy_inputs_that_calls_ask_for_are_united() -> None:
    node, context, _ = lowered({"names": ["a", "b"]}, {"names": ["b", "c"]})
    assert await node.check_lazy(context, [{}, {}]) == ["a", "b", "c"]
    assert context.calls[0].inputs["method"] == "check_lazy_status"


def test_declaration_says_what_the_host_said() -> None:
    declaration = declaration_of(INFO, Scopes())
    by_name = {spec.name: spec for spec in declaration.inputs}
    assert by_name["mode"].type == ("x", "y")
    assert by_name["any"].matches_any
    assert by_name["mode"].section == "optional"
    assert declaration.outputs[1].is_list
    assert declaration.remote_check is not None
    assert declaration.remote_check.covers("a")
    assert not declaration.remote_check.covers("mode")
    assert declaration.has_remote_token
    assert declaration.lower_calls is not None
    assert declaration.check_lazy is not None
    assert declaration.info == INFO.info
