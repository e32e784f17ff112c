"""Graphs that nodes expand to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comfyserverless.host.bridge import CallInfo
from tests.support.pack_modules import RememberingBridge, module, pack_modules


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[RememberingBridge]:
    with pack_modules(tmp_path) as bridge:
        bridge.own_call = CallInfo(prompt_id="p", node_id="7")
        yield bridge


@pytest.fixture
def utils(bridge: RememberingBridge) -> Any:
    return module("comfy_execution.graph_utils")


def test_graph_has_nodes_links_and_ids_of_its_own(utils: Any) -> None:
    graph = utils.GraphBuilder()
    first = graph.node("EmptyImage", width=64)
    second = graph.node("ImageInvert", "mine", image=first.out(0))
    second.set_override_display_id("3")
    assert graph.node("ImageInvert", "mine") is second
    assert graph.lookup_node("1") is first
    assert graph.finalize() == {
        "7.0.0.1": {"class_type": "EmptyImage", "inputs": {"width": 64}},
        "7.0.0.mine": {
            "class_type": "ImageInvert",
            "inputs": {"image": ["7.0.0.1", 0]},
            "override_display_id": "3",
        },
    }


def test_prefixes_are_those_of_the_call_and_the_same_when_it_runs_again(
    utils: Any, bridge: RememberingBridge
) -> None:
    assert [utils.GraphBuilder().prefix for _ in range(2)] == ["7.0.0.", "7.0.1."]
    bridge.own_call = replace(bridge.own_call, list_index=1)
    assert utils.GraphBuilder().prefix == "7.1.0."
    bridge.own_call = replace(bridge.own_call)
    assert utils.GraphBuilder().prefix == "7.1.0."
    assert utils.GraphBuilder("own.").prefix == "own."


def test_packs_may_say_what_prefixes_are_made_of(utils: Any) -> None:
    utils.GraphBuilder.set_default_prefix("UID", 2, 5)
    assert [utils.GraphBuilder().prefix for _ in range(2)] == ["UID.2.5.", "UID.2.6."]
    assert utils.GraphBuilder.alloc_prefix("x", 1, 2) == "x.1.2."


def test_inputs_are_set_and_taken_away(utils: Any) -> None:
    node = utils.GraphBuilder().node("A", x=1)
    node.set_input("y", 2)
    node.set_input("x", None)
    assert (node.get_input("x"), node.get_input("y")) == (None, 2)


def test_outputs_are_replaced_where_they_are_linked(utils: Any) -> None:
    graph = utils.GraphBuilder()
    source = graph.node("A")
    user = graph.node("B", x=source.out(0), y=source.out(1), z=[source.id, 0])
    graph.replace_node_output("1", 0, 5)
    graph.replace_node_output("1", 1, None)
    graph.remove_node("1")
    assert user.inputs == {"x": 5, "z": 5}
    assert graph.lookup_node("1") is None


def test_links_are_pairs_of_text_and_number(utils: Any) -> None:
    assert utils.is_link(["1", 0])
    assert utils.is_link(["1", 0.0])
    for other in (("1", 0), [1, 0], ["1", "0"], ["1"], "10", None, ["1", True]):
        assert not utils.is_link(other)


def test_a_graph_is_moved_below_a_prefix_with_its_outputs(utils: Any) -> None:
    graph = {
        "1": {"class_type": "A", "inputs": {"x": ["2", 0], "y": 3}},
        "2": {"class_type": "B", "inputs": {}},
    }
    moved, outputs = utils.add_graph_prefix(graph, (["1", 0], 4), "p.")
    assert moved["p.1"]["inputs"] == {"x": ["p.2", 0], "y": 3}
    assert outputs == (["p.1", 0], 4)


def test_context_is_that_of_the_call_or_of_the_block(bridge: RememberingBridge) -> None:
    utils = module("comfy_execution.utils")
    assert utils.get_executing_context() == ("p", "7", 0)
    with utils.CurrentNodeContext("q", "8"):
        assert utils.get_executing_context().node_id == "8"
    bridge.own_call = CallInfo()
    assert utils.get_executing_context() is None


def test_progress_of_a_node_is_reported_by_its_id(bridge: RememberingBridge) -> None:
    module("comfy_execution.progress").get_progress_state().update_progress("9", 1, 2)
    assert bridge.told == [("progress", (1, 2, "9", None))]


def test_types_are_compared_as_packs_do(bridge: RememberingBridge) -> None:
    fits = module("comfy_execution.validation").validate_node_input
    io = module("comfy.comfy_types").IO
    assert fits("INT", "INT,FLOAT")
    assert not fits("INT,STRING", "INT", strict=True)
    assert not fits("INT", "FLOAT")
    assert fits("*", "FLOAT")
    assert (io.ANY != "MASK") is False
    assert (io.NUMBER != "INT") is False
    assert io.INT != "FLOAT"
    assert io.INT != 3
    assert (str(io.IMAGE), io.IMAGE == "IMAGE", hash(io.IMAGE)) == ("IMAGE", True, hash("IMAGE"))
