"""Inputs that depend on what was submitted: which exist, which are required, and what the node gets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.core.dynamic_inputs import Expansion, expand, fold, has_dynamic, is_dynamic

IMAGES: dict[str, Any] = {
    "required": {
        "images": [
            "COMFY_AUTOGROW_V3",
            {
                "template": {
                    "input": {"required": {"image": ["IMAGE", {}]}},
                    "prefix": "image",
                    "min": 2,
                    "max": 50,
                }
            },
        ]
    }
}
NAMED: dict[str, Any] = {
    "required": {
        "values": [
            "COMFY_AUTOGROW_V3",
            {
                "template": {
                    "input": {"required": {"v": ["INT", {"min": 3}]}},
                    "names": ["a", "b", "c"],
                    "min": 0,
                }
            },
        ]
    }
}
RESIZE: dict[str, Any] = {
    "required": {
        "mode": [
            "COMFY_DYNAMICCOMBO_V3",
            {
                "options": [
                    {"key": "by factor", "inputs": {"required": {"factor": ["FLOAT", {"min": 0.1}]}}},
                    {
                        "key": "to size",
                        "inputs": {
                            "required": {"width": ["INT", {}]},
                            "optional": {"crop": ["COMBO", {"options": ["no", "center"]}]},
                        },
                    },
                ]
            },
        ],
        "method": ["COMBO", {"options": ["area"]}],
    }
}
SLOT: dict[str, Any] = {
    "optional": {
        "picture": [
            "COMFY_DYNAMICSLOT_V3",
            {"slotType": "IMAGE", "inputs": {"required": {"strength": ["FLOAT", {}]}}, "tooltip": "one"},
        ]
    }
}
ROWS: dict[str, Any] = {
    "required": {
        "rows": [
            "COMFY_DYNAMICGROUP_V3",
            {"template": {"required": {"name": ["STRING", {}]}}, "min": 1, "max": 12},
        ]
    }
}


def _sections(expansion: Expansion) -> dict[str, str]:
    return {leaf.name: leaf.section for leaf in expansion.leaves}


def test_parts_below_the_minimum_are_required_and_those_submitted_exist() -> None:
    expansion = expand(IMAGES, {"images.image0": ["1", 0], "images.image7": ["2", 0]})
    assert _sections(expansion) == {
        "images.image0": "required",
        "images.image1": "required",
        "images.image7": "optional",
    }
    assert {leaf.type for leaf in expansion.leaves} == {"IMAGE"}


def test_parts_beyond_the_maximum_are_no_inputs() -> None:
    assert "images.image50" not in _sections(expand(IMAGES, {"images.image50": ["1", 0]}))


def test_named_parts_keep_the_options_of_the_template() -> None:
    (leaf,) = expand(NAMED, {"values.b": 4, "values.d": 1}).leaves
    assert (leaf.name, leaf.type, dict(leaf.options), leaf.path) == (
        "values.b",
        "INT",
        {"min": 3},
        ("values", "b"),
    )


def test_container_without_parts_is_an_empty_dict() -> None:
    assert fold({}, expand(NAMED, {})) == {"values": {}}


def test_dynamic_combo_has_the_inputs_of_the_submitted_key() -> None:
    values = {"mode": "to size", "mode.width": 64, "method": "area"}
    expansion = expand(RESIZE, values)
    assert _sections(expansion) == {
        "mode": "required",
        "mode.width": "required",
        "mode.crop": "optional",
        "method": "required",
    }
    assert expansion.leaves[0].type == "COMBO"
    assert expansion.leaves[0].options["options"] == ["by factor", "to size"]
    assert fold(values, expansion) == {"mode": {"mode": "to size", "width": 64}, "method": "area"}


def test_dynamic_combo_with_an_unknown_key_has_no_inputs_of_its_own() -> None:
    assert _sections(expand(RESIZE, {"mode": "sideways"})) == {"mode": "required", "method": "required"}


def test_slot_brings_its_inputs_once_it_is_filled() -> None:
    assert _sections(expand(SLOT, {})) == {"picture": "optional"}
    values = {"picture": "P", "picture.strength": 0.5}
    expansion = expand(SLOT, values)
    assert _sections(expansion) == {"picture": "optional", "picture.strength": "optional"}
    assert expansion.leaves[0].type == "IMAGE"
    assert dict(expansion.leaves[0].options) == {"tooltip": "one"}
    assert fold(values, expansion) == {"picture": {"picture": "P", "strength": 0.5}}


def test_group_becomes_a_list_in_the_order_of_numbers() -> None:
    values = {"rows.10.name": "z", "rows.2.name": "b", "rows.0.name": "a"}
    assert fold(values, expand(ROWS, values)) == {"rows": [{"name": "a"}, {"name": "b"}, {"name": "z"}]}


def test_every_nested_leaf_can_be_given_with_its_submitted_name() -> None:
    values = {"mode": "by factor", "mode.factor": 2.0, "method": "area"}
    folded = fold(values, expand(RESIZE, values), lambda value, name: (value, name))
    assert folded == {"mode": {"mode": ("by factor", "mode"), "factor": (2.0, "mode.factor")}, "method": "area"}


def test_undeclared_names_stay_flat_and_a_value_for_the_container_itself_is_left_out() -> None:
    values = {"images": 1, "images.image0": 2, "images.picture": 3, "other": 4}
    assert fold(values, expand(IMAGES, values)) == {"images": {"image0": 2}, "images.picture": 3, "other": 4}


@pytest.mark.parametrize("declared", [IMAGES, NAMED, RESIZE, SLOT, ROWS])
def test_containers_are_told_from_ordinary_inputs(declared: dict[str, Any]) -> None:
    assert has_dynamic(declared)
    assert not has_dynamic({"required": {"a": ["INT"], "b": [["x", "y"]]}})
    assert not is_dynamic(["COMFY_AUTOGROW_V3"])


Declared = tuple[list[Any], dict[str, Any], Any]
"""An entry, what is submitted below it (dotted suffix -> value), and what the node is to get."""


def _plain(value: int) -> Declared:
    return ["INT", {}], {"": value}, value


def _below(name: str, submitted: dict[str, Any]) -> dict[str, Any]:
    return {f".{name}{suffix}": value for suffix, value in submitted.items()}


@st.composite
def _autogrow(draw: st.DrawFn, inner: st.SearchStrategy[Declared]) -> Declared:
    entry, submitted, nested = draw(inner)
    indices = draw(st.sets(st.integers(0, 9), min_size=1, max_size=3))
    template = {"input": {"required": {"part": entry}}, "prefix": "p", "min": 0, "max": 10}
    names = [f"p{index}" for index in sorted(indices)]
    below = {key: value for name in names for key, value in _below(name, submitted).items()}
    return (
        ["COMFY_AUTOGROW_V3", {"template": template}],
        below,
        {name: _renamed(nested, name) for name in names},
    )


@st.composite
def _combo(draw: st.DrawFn, inner: st.SearchStrategy[Declared]) -> Declared:
    entry, submitted, nested = draw(inner)
    # A combo's own value and its parts lie in one dict, so that no part can have the name of the combo.
    name = "inner" if isinstance(nested, dict) and "sub" in nested else "sub"
    options = [{"key": "none", "inputs": {}}, {"key": "one", "inputs": {"optional": {name: entry}}}]
    content = {OWN: "one", name: _renamed(nested, name)}
    return ["COMFY_DYNAMICCOMBO_V3", {"options": options}], {"": "one", **_below(name, submitted)}, content


@st.composite
def _group(draw: st.DrawFn, inner: st.SearchStrategy[Declared]) -> Declared:
    entry, submitted, nested = draw(inner)
    count = draw(st.integers(1, 3))
    options = {"template": {"required": {"field": entry}}, "min": 0, "max": 10}
    below = {f".{row}{key}": value for row in range(count) for key, value in _below("field", submitted).items()}
    rows = [{"field": _renamed(nested, "field")} for _ in range(count)]
    return ["COMFY_DYNAMICGROUP_V3", options], below, rows


OWN = "\0own"
"""Stands for the name of the container in what is expected, until the name is known."""


def _renamed(nested: Any, name: str) -> Any:
    if isinstance(nested, dict) and OWN in nested:
        return {name if key == OWN else key: value for key, value in nested.items()}
    return nested


NESTED = st.recursive(
    st.builds(_plain, st.integers(0, 9)),
    lambda inner: st.one_of(_autogrow(inner), _combo(inner), _group(inner)),
    max_leaves=4,
)


@given(NESTED)
def test_containers_nest_in_each_other(declared: Declared) -> None:
    entry, submitted, nested = declared
    values = {f"top{suffix}": value for suffix, value in submitted.items()}
    expansion = expand({"required": {"top": entry}}, values)
    assert {leaf.name for leaf in expansion.leaves} == set(values)
    assert fold(values, expansion) == {"top": _renamed(nested, "top")}
