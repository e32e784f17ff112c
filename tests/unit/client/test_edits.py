"""`--set NODE.INPUT=VALUE` changes one input, or says what there is."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.client.edits import Edit, apply_edit, read_edits
from comfyserverless.core.errors import ConfigError
from comfyserverless.graph.workflows.conversion import Instance

INFO = {
    "Sampler": {
        "input": {
            "required": {
                "model": ["MODEL", {}],
                "seed": ["INT", {"min": 0, "max": 100}],
                "cfg": ["FLOAT", {"min": 0.0, "max": 30.0}],
                "name": [["euler", "heun"], {}],
                "text": ["STRING", {}],
                "is_on": ["BOOLEAN", {}],
                "size": [
                    "COMFY_DYNAMICCOMBO_V3",
                    {"options": [{"key": "big", "inputs": {"required": {"width": ["INT", {}]}}}]},
                ],
                "free": ["FLOAT", {}],
                "curve": ["CURVE", {}],
            }
        }
    },
}


INSTANCES = {"5": Instance("My part", {"cfg": [("5:7", "cfg")], "both": [("3", "seed"), ("5:7", "seed")]})}


def prompt() -> dict[str, Any]:
    """Build a prompt with two nodes of one class."""
    return {
        "3": {"class_type": "Sampler", "inputs": {"size": "big"}, "_meta": {"title": "First v1.5"}},
        "5:7": {"class_type": "Sampler", "inputs": {"seed": ["3", 0]}, "_meta": {"title": "Second"}},
        "9": {"class_type": "Save", "inputs": {"prefix": "a"}},
    }


def edited(text: str) -> dict[str, Any]:
    """Return the prompt after one edit."""
    changed = prompt()
    for edit in read_edits(text, changed, INSTANCES):
        apply_edit(edit, changed, INFO)
    return changed


@pytest.mark.parametrize(
    ("text", "node_id", "name", "value"),
    [
        ("3.seed=7", "3", "seed", 7),
        ("5.cfg=4.5", "5:7", "cfg", 4.5),
        ("My part.both=6", "3", "seed", 6),
        ("My part.both=6", "5:7", "seed", 6),
        ("5:7.seed=0", "5:7", "seed", 0),
        ("Second.cfg=1.5", "5:7", "cfg", 1.5),
        ("First v1.5.cfg=2", "3", "cfg", 2),
        ("3.name=heun", "3", "name", "heun"),
        ("3.text=a = b, and more", "3", "text", "a = b, and more"),
        ("3.text=", "3", "text", ""),
        ("3.is_on=no", "3", "is_on", False),
        ("3.size=big", "3", "size", "big"),
        ("3.size.width=64", "3", "size.width", 64),
        ("Save.prefix=b", "9", "prefix", "b"),
        ('3.curve={"points": []}', "3", "curve", {"points": []}),
    ],
)
def test_value_gets_the_declared_type(text: str, node_id: str, name: str, value: Any) -> None:
    found = edited(text)[node_id]["inputs"][name]
    assert found == value
    assert isinstance(found, bool) is isinstance(value, bool)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("seed=7", "not of the form NODE.INPUT=VALUE"),
        ("3.seed", "not of the form NODE.INPUT=VALUE"),
        ("Sampler.seed=7", "names 2 nodes; take an id: 3, 5:7"),
        ("Third.seed=7", r"no such node; nodes: 3 \(First v1.5\), 5:7 \(Second\), 9 \(Save\), 5 \(My part\)"),
        ("5.sampler=x", "the subgraph 'My part' has no such input; inputs: cfg, both"),
        ("3.sead=7", "no such input; inputs: model, seed, cfg"),
        ("3.seed=7.5", "not a whole number"),
        ("3.seed=101", "not between 0 and 100"),
        ("3.cfg=much", "not a number"),
        ("3.name=eular", "not one of euler, heun"),
        ("3.is_on=maybe", "not true or false"),
        ("3.size=small", "not one of big"),
        ("3.model=x", "takes MODEL from another node"),
    ],
)
def test_bad_edit_says_what_is_allowed(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        edited(text)


def test_list_is_wrapped_so_that_it_is_no_link() -> None:
    assert edited('9.prefix=["1", 0]')["9"]["inputs"]["prefix"] == {"__value__": ["1", 0]}


def test_name_of_an_uploaded_file_needs_no_choice() -> None:
    changed = prompt()
    apply_edit(Edit("3", "name", "new.png", is_uploaded=True), changed, INFO)
    assert changed["3"]["inputs"]["name"] == "new.png"


@pytest.mark.parametrize("number", ["nan", "inf", "1e999"])
def test_number_that_json_cannot_carry_is_refused_here(number: str) -> None:
    with pytest.raises(ConfigError, match="finite"):
        edited(f"3.free={number}")
