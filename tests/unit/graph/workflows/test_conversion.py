"""Convert saved workflows as the page does; its answers were recorded with frontend 1.58.1."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyserverless.graph.workflows.conversion import convert
from comfyserverless.graph.workflows.document import WorkflowError
from tests.support.templates import (
    load_data,
    local_image_templates,
    same_order,
    template,
    template_classes,
)

RULES = {rule["name"]: rule for rule in load_data("page_rules.json.gz")["rules"]}


def node(node_id: int | str, kind: str, values: Any = None, **more: Any) -> dict[str, Any]:
    """Build a saved node."""
    return {
        "id": node_id,
        "type": kind,
        "mode": 0,
        "inputs": [],
        "outputs": [],
        "widgets_values": values,
    } | more


def workflow(*nodes: dict[str, Any], links: tuple[list[Any], ...] = (), **more: Any) -> dict[str, Any]:
    """Build a saved workflow of version 0.4."""
    return {"version": 0.4, "last_node_id": 90, "nodes": list(nodes), "links": list(links)} | more


def info(**classes: dict[str, Any]) -> dict[str, Any]:
    """Build the answer of /object_info from the required inputs of classes."""
    return {name: {"input": {"required": inputs}, "name": name} for name, inputs in classes.items()}


@pytest.mark.parametrize("name", RULES)
def test_prompt_is_the_one_of_the_page(name: str) -> None:
    rule = RULES[name]
    found = convert(rule["workflow"], load_data("page_rules.json.gz")["object_info"])
    assert not found.missing
    assert json.dumps(found.prompt, indent=1) == json.dumps(rule["prompt"], indent=1)


@pytest.mark.parametrize("name", local_image_templates())
def test_template_converts_to_the_prompt_of_the_page(name: str) -> None:
    found = convert(template(name), template_classes())
    assert not found.missing
    assert same_order(found.prompt) == same_order(load_data("templates.json.gz")["prompts"][name])


def test_all_local_image_templates_are_compared() -> None:
    assert len(local_image_templates()) == 149
    assert set(local_image_templates()) == set(load_data("templates.json.gz")["prompts"])


def test_document_stays_as_it_was() -> None:
    rule = RULES["dup ids"]
    before = copy.deepcopy(rule["workflow"])
    convert(rule["workflow"], load_data("page_rules.json.gz")["object_info"])
    assert rule["workflow"] == before


def test_class_that_is_not_declared_keeps_its_name_and_is_told() -> None:
    inputs = [{"name": "text", "type": "STRING", "link": None, "widget": {"name": "text"}}]
    found = convert(workflow(node(3, "Gone", ["hello"], inputs=inputs), node(4, "Gone", {"a": 1})), {})
    assert found.missing == {"Gone": ["3", "4"]}
    assert found.prompt["3"]["inputs"] == {"text": "hello"}
    assert found.prompt["4"]["inputs"] == {"a": 1}
    assert found.prompt["3"]["class_type"] == "Gone"


def test_values_saved_by_name_are_read_by_name() -> None:
    classes = info(Film={"rate": ["FLOAT", {"default": 8}], "loop": ["INT", {}]})
    saved = workflow(node(1, "Film", {"loop": 3, "videopreview": {"hidden": True}}))
    assert convert(saved, classes).prompt["1"]["inputs"] == {"rate": 8, "loop": 3}


def test_values_saved_without_control_modes_are_understood() -> None:
    classes = info(Sampler={"seed": ["INT", {}], "steps": ["INT", {}], "name": ["COMBO", {"options": ["e"]}]})
    found = convert(workflow(node(1, "Sampler", [7, 20, "e"])), classes)
    assert found.prompt["1"]["inputs"] == {"seed": 7, "steps": 20, "name": "e"}


def test_set_and_get_nodes_are_looked_through() -> None:
    classes = info(Source={}, Target={"image": ["IMAGE", {}]})
    saved = workflow(
        node(1, "Source", outputs=[{"name": "IMAGE", "type": "IMAGE"}]),
        node(2, "SetNode", ["pic"], inputs=[{"name": "IMAGE", "type": "IMAGE", "link": 1}]),
        node(3, "GetNode", ["pic"], outputs=[{"name": "IMAGE", "type": "IMAGE"}]),
        node(4, "Target", [], inputs=[{"name": "image", "type": "IMAGE", "link": 2}]),
        links=([1, 1, 0, 2, 0, "IMAGE"], [2, 3, 0, 4, 0, "IMAGE"]),
    )
    found = convert(saved, classes)
    assert found.prompt["4"]["inputs"] == {"image": ["1", 0]}
    assert list(found.prompt) == ["1", "4"]


def test_bypassed_node_without_inputs_feeds_nothing() -> None:
    classes = info(Source={}, Target={"any": ["*", {}]})
    saved = workflow(
        node(1, "Source", outputs=[{"name": "IMAGE", "type": "IMAGE"}], mode=4),
        node(4, "Target", [], inputs=[{"name": "any", "type": "*", "link": 1}]),
        links=([1, 1, 0, 4, 0, "*"],),
    )
    assert convert(saved, classes).prompt["4"]["inputs"] == {}


def test_links_of_bypassed_nodes_in_a_circle_are_refused() -> None:
    classes = info(Pass={"image": ["IMAGE", {}]})
    one = {
        "inputs": [{"name": "image", "type": "IMAGE", "link": 1}],
        "outputs": [{"name": "I", "type": "IMAGE"}],
    }
    two = {
        "inputs": [{"name": "image", "type": "IMAGE", "link": 2}],
        "outputs": [{"name": "I", "type": "IMAGE"}],
    }
    three = {"inputs": [{"name": "image", "type": "IMAGE", "link": 3}]}
    saved = workflow(
        node(1, "Pass", **one, mode=4),
        node(2, "Pass", **two, mode=4),
        node(3, "Pass", **three),
        links=([1, 2, 0, 1, 0, "IMAGE"], [2, 1, 0, 2, 0, "IMAGE"], [3, 1, 0, 3, 0, "IMAGE"]),
    )
    with pytest.raises(WorkflowError, match="circle"):
        convert(saved, classes)


def test_subgraph_that_contains_itself_is_refused() -> None:
    inner = {"id": "loop", "nodes": [node(5, "loop")], "links": []}
    with pytest.raises(WorkflowError, match="contains itself"):
        convert(workflow(node(1, "loop"), definitions={"subgraphs": [inner]}), {})


@pytest.mark.parametrize("document", [None, [], {}, {"nodes": 3}, {"nodes": [{"id": 1}]}, {"nodes": ["x"]}])
def test_what_is_no_workflow_is_refused(document: Any) -> None:
    with pytest.raises(WorkflowError):
        convert(document, {})


@settings(max_examples=40)
@given(st.sampled_from(sorted(RULES)), st.data())
def test_damaged_workflows_convert_or_are_refused(name: str, data: st.DataObject) -> None:
    document = copy.deepcopy(RULES[name]["workflow"])
    for _ in range(data.draw(st.integers(1, 4))):
        damage(document, data)
    with suppress(WorkflowError):
        convert(document, load_data("page_rules.json.gz")["object_info"])


def damage(document: Any, data: st.DataObject) -> None:
    """Replace one value, somewhere in a JSON value."""
    inside = document
    while True:
        keys = sorted(inside) if isinstance(inside, dict) else range(len(inside))
        key = data.draw(st.sampled_from(list(keys)))
        if isinstance(inside[key], dict | list) and inside[key] and data.draw(st.integers(0, 5)) > 0:
            inside = inside[key]
            continue
        inside[key] = data.draw(
            st.sampled_from([None, 0, -1, 3, "x", "-10", 1.5, True, [], {}, [1], {"id": 1}])
        )
        return


def test_widgets_of_subgraphs_are_named_with_what_they_stand_for() -> None:
    classes = load_data("page_rules.json.gz")["object_info"]
    fanned = convert(RULES["sub fan"]["workflow"], classes).instances["5"]
    assert fanned.inputs == {"t": [("5:11", "t"), ("5:12", "t")]}
    shown = convert(RULES["sub proxy unlinked widget"]["workflow"], classes).instances["5"]
    assert shown.inputs == {"t": [("5:11", "t")], "n": [("5:11", "n")], "c": [("5:11", "c")]}
    nested = convert(RULES["nest plain"]["workflow"], classes).instances
    assert nested["7"].inputs == {"title": [("7:21:11", "t")]}


def test_first_of_two_links_to_one_output_of_a_subgraph_counts() -> None:
    sources = [node(11, "Source", outputs=[{"name": "IMAGE", "type": "IMAGE"}])]
    sources.append(node(12, "Source", outputs=[{"name": "IMAGE", "type": "IMAGE"}]))
    ends = [(1, 12, 0, -20, 0), (2, 11, 0, -20, 0)]
    keys = ("id", "origin_id", "origin_slot", "target_id", "target_slot")
    links = [dict(zip(keys, end, strict=True)) for end in ends]
    inner = {"id": "part", "nodes": sources, "links": links, "outputs": [{"name": "IMAGE", "type": "IMAGE"}]}
    saved = workflow(
        node(1, "part", outputs=[{"name": "IMAGE", "type": "IMAGE"}]),
        node(2, "Target", [], inputs=[{"name": "image", "type": "IMAGE", "link": 1}]),
        links=([1, 1, 0, 2, 0, "IMAGE"],),
        definitions={"subgraphs": [inner]},
    )
    found = convert(saved, info(Source={}, Target={"image": ["IMAGE", {}]}))
    assert found.prompt["2"]["inputs"] == {"image": ["1:12", 0]}


def test_inputs_of_widgets_that_a_class_no_longer_has_are_gone_and_its_sockets_kept() -> None:
    inputs = [
        {"name": "gone", "type": "INT", "link": 1, "widget": {"name": "gone"}},
        {"name": "extra", "type": "INT", "link": 2},
    ]
    saved = workflow(
        node(1, "Source", outputs=[{"name": "INT", "type": "INT"}]),
        node(2, "Target", [], inputs=inputs),
        links=([1, 1, 0, 2, 0, "INT"], [2, 1, 0, 2, 1, "INT"]),
    )
    assert convert(saved, info(Source={}, Target={})).prompt["2"]["inputs"] == {"extra": ["1", 0]}
