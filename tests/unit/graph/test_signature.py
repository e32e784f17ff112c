"""Cache keys: what must change them and what must not."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.core.ids import NodeId
from comfyserverless.core.values import FileRef
from comfyserverless.graph.declaration import FileCatalog, InputSpec, NodeDeclaration
from comfyserverless.graph.plan import Plan
from comfyserverless.graph.signature import Signature, signatures
from comfyserverless.graph.validation import validate
from comfyserverless.nodes.specs import socket
from tests.support.costs import is_linear
from tests.support.graph_fakes import RECORDED_CLASSES, FakeCatalog, node_class, with_builtin
from tests.support.graph_prompts import Prompt, image_chain, node, text_to_image

ANY = node_class("Any", InputSpec("value", "ANYTHING", {}, "optional"), output_node=True)


def plan_of(prompt: Prompt, *classes: NodeDeclaration) -> Plan:
    outcome = validate(prompt, with_builtin(*RECORDED_CLASSES, ANY, *classes), FakeCatalog())
    assert outcome.plan is not None, outcome.node_errors
    return outcome.plan


def keys(prompt: Prompt, *classes: NodeDeclaration) -> Mapping[NodeId, Signature | None]:
    return signatures(plan_of(prompt, *classes), FakeCatalog())


def key(prompt: Prompt, node_id: str, *classes: NodeDeclaration) -> Signature:
    found = keys(prompt, *classes)[NodeId(node_id)]
    assert found is not None
    return found


def constant_key(value: Any) -> Signature | None:
    return keys({"1": node("Any", value={"__value__": value})})[NodeId("1")]


def test_ids_titles_and_order_do_not_matter() -> None:
    prompt = text_to_image()
    renamed = {
        f"x{node_id}": {
            "inputs": {
                name: [f"x{value[0]}", value[1]] if isinstance(value, list) else value
                for name, value in reversed(entry["inputs"].items())
            },
            "class_type": entry["class_type"],
            "_meta": {"title": node_id},
        }
        for node_id, entry in reversed(prompt.items())
    }
    one, other = keys(prompt), keys(renamed)
    assert {f"x{node_id}": signature for node_id, signature in one.items()} == dict(other)
    assert len(set(one.values())) == len(prompt)


@pytest.mark.parametrize(
    ("node_id", "name", "value", "changed"),
    [
        ("4", "ckpt_name", "sdxl_tiny.safetensors", {"4", "6", "7", "3", "8", "9"}),
        ("5", "width", 128, {"5", "3", "8", "9"}),
        ("6", "text", "a dog", {"6", "3", "8", "9"}),
        ("3", "seed", 2, {"3", "8", "9"}),
        ("9", "filename_prefix", "other", {"9"}),
    ],
)
def test_constant_changes_its_node_and_all_after_it(
    node_id: str, name: str, value: Any, changed: set[str]
) -> None:
    before, prompt = keys(text_to_image()), text_to_image()
    prompt[node_id]["inputs"][name] = value
    after = keys(prompt)
    assert {key for key in before if before[key] != after[key]} == changed


def test_same_text_encoded_twice_has_one_key() -> None:
    prompt = text_to_image()
    prompt["7"]["inputs"]["text"] = "a cat"
    assert key(prompt, "6") == key(prompt, "7")


def test_slot_input_name_and_class_matter() -> None:
    other = node_class("Other", socket("image", "IMAGE"))
    prompt = {
        "e": node("EmptyImage", width=8, height=8, batch_size=1, color=0),
        "a": node("ImageInvert", image=["e", 0]),
        "b": node("Other", image=["e", 0]),
        "s": node("SaveImage", images=["a", 0], filename_prefix="x"),
    }
    assert key(prompt, "a", other) != key(prompt, "b", other)
    swapped = text_to_image()
    swapped["3"]["inputs"] |= {"positive": ["7", 0], "negative": ["6", 0]}
    assert key(swapped, "3") != key(text_to_image(), "3")
    two = node_class("Two", outputs="IMAGE IMAGE")
    first = {
        "t": node("Two"),
        "i": node("ImageInvert", image=["t", 0]),
        "s": node("SaveImage", images=["i", 0], filename_prefix="x"),
    }
    second = copy.deepcopy(first)
    second["i"]["inputs"]["image"] = ["t", 1]
    assert key(first, "i", two) != key(second, "i", two)


def test_values_are_compared_after_coercion() -> None:
    assert key(text_to_image(steps="3", cfg=7.0), "3") == key(text_to_image(steps=3.9, cfg="7"), "3")


def test_undeclared_constant_changes_the_key() -> None:
    assert key(text_to_image(extra=1), "3") != key(text_to_image(), "3")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0, False),
        (0.0, -0.0),
        ([1, "a"], [1.0, "a"]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ],
)
def test_equal_constants_give_equal_keys(one: Any, other: Any) -> None:
    assert constant_key(one) == constant_key(other)


_CONSTANTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(_CONSTANTS, _CONSTANTS)
def test_constants_give_equal_keys_exactly_if_they_are_equal(one: Any, other: Any) -> None:
    assert (constant_key(one) == constant_key(other)) == (one == other)


@pytest.mark.parametrize(
    "value", [["1", "2"], ["12"], "12", ["1", ["2"]], [["1"], "2"], None, "None", [], {}, [{}]]
)
def test_constants_of_other_shape_have_other_keys(value: Any) -> None:
    others: list[Any] = [["1", "2"], ["12"], "12", ["1", ["2"]], [["1"], "2"], None, "None", [], {}, [{}]]
    same = [other for other in others if constant_key(other) == constant_key(value)]
    assert same == [value]


@pytest.mark.parametrize("value", [math.nan, [1, math.nan], {"a": math.nan}])
def test_nan_is_never_cached(value: Any) -> None:
    assert constant_key(value) is None


def test_deeply_nested_constant_has_a_key() -> None:
    deep: Any = 1
    for _ in range(20_000):
        deep = [deep]
    assert constant_key(deep) is not None


def _with_token(token: Any) -> NodeDeclaration:
    def is_changed(catalog: FileCatalog, values: Mapping[str, Any]) -> Any:
        return token(values) if callable(token) else token

    return node_class(
        "Changing", InputSpec("value", "INT", {}, "optional"), socket("image", "IMAGE"), is_changed=is_changed
    )


def _changing(token: Any, **inputs: Any) -> Mapping[NodeId, Signature | None]:
    prompt = {
        "e": node("EmptyImage", width=8, height=8, batch_size=1, color=0),
        "c": node("Changing", **{"value": 1, "image": ["e", 0], **inputs}),
        "s": node("SaveImage", images=["c", 0], filename_prefix="x"),
    }
    return keys(prompt, _with_token(token))


def test_change_token_is_part_of_the_key_of_its_node_and_all_after_it() -> None:
    one, other = _changing("a"), _changing("b")
    assert one["e"] == other["e"]
    assert one["c"] != other["c"]
    assert one["s"] != other["s"]
    assert _changing(True) == _changing(True)


@pytest.mark.parametrize("token", [math.nan, lambda values: 1 / 0, object(), (1, {2, 3})])
def test_token_that_is_nan_raises_or_has_no_form_means_always_run(token: Any) -> None:
    found = _changing(token)
    assert found["c"] is None
    assert found["s"] is None
    assert found["e"] is not None


def test_change_token_sees_constants_and_none_for_links() -> None:
    seen: list[Any] = []
    _changing(lambda values: seen.append(dict(values)))
    assert seen == [{"value": 1, "image": None}]


def test_submitted_is_changed_is_used_instead_of_asking() -> None:
    prompt = {"1": node("Any", value=1) | {"is_changed": "t"}}
    other = {"1": node("Any", value=1) | {"is_changed": "u"}}
    assert key(prompt, "1") != key(other, "1") != key({"1": node("Any", value=1)}, "1")


def test_replaced_upload_changes_the_key() -> None:
    catalog = FakeCatalog(uploads={"a.png": FileRef("/in/a.png", 5, 1)})
    prompt = {"1": node("LoadImage", image="a.png"), "2": node("PreviewImage", images=["1", 0])}
    plan = validate(prompt, with_builtin(), catalog).plan
    assert plan is not None
    before = signatures(plan, catalog)
    assert signatures(plan, catalog) == before
    catalog.uploads["a.png"] = FileRef("/in/a.png", 5, 2)
    after = signatures(plan, catalog)
    assert before["2"] != after["2"]
    assert None not in after.values()


@pytest.mark.parametrize("more", [{"not_idempotent": True}, {"hidden": {"own": "UNIQUE_ID"}}])
def test_node_with_identity_has_a_key_of_its_own(more: Any) -> None:
    own = node_class("Own", output_node=True, **more)
    found = keys({"1": node("Own"), "2": node("Own")}, own)
    assert found["1"] != found["2"]
    assert found == keys({"1": node("Own"), "2": node("Own")}, own)


def test_node_behind_a_broken_link_or_a_circle_is_never_cached() -> None:
    prompt = image_chain(1) | {
        "a": node("ImageInvert", image=["b", 0]),
        "b": node("ImageInvert", image=["a", 0]),
        "c": node("ImageInvert", image=["b", 0]),
        "self": node("ImageInvert", image=["self", 0]),
        "lost": node("ImageInvert", image=["nowhere", 0]),
    }
    found = keys(prompt)
    assert [found[NodeId(name)] for name in ("a", "b", "c", "self", "lost")] == [None] * 5
    assert found[NodeId("save")] is not None


def test_unreachable_nodes_have_keys_too() -> None:
    prompt = image_chain(1) | {"u": node("ImageInvert", image=["0", 0])}
    assert key(prompt, "u") == key(prompt, "1")


def test_ten_thousand_nodes_are_signed_in_ten_times_the_time_of_a_thousand_with_small_keys() -> None:
    def chain(size: int) -> Plan:
        return plan_of(image_chain(size))

    assert is_linear(chain, lambda plan: signatures(plan, FakeCatalog()), 10_000)
    found = signatures(chain(10_000), FakeCatalog())
    assert len(set(found.values())) == 10_002
    assert all(signature is not None and len(signature) <= 32 for signature in found.values())
