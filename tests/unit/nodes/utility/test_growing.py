"""Inputs that depend on what is submitted."""

from __future__ import annotations

from comfyserverless.graph.declaration import InputSpec
from comfyserverless.nodes.utility.growing import choosing, dynamic, growing, grown, matched, matching

INPUTS = (
    InputSpec("plain", "INT"),
    growing("rows", InputSpec("row", "IMAGE"), (1, 3)),
    growing("letters", InputSpec("letter", "*"), (0, 2), ("x", "y")),
    choosing("mode", (("one", (InputSpec("size", ("small", "large"), {"default": "small"}),)), ("none", ()))),
)


def test_declarations_have_the_shapes_of_object_info() -> None:
    _, rows, letters, mode = INPUTS
    assert rows.options["template"] == {
        "input": {"required": {"row": ["IMAGE", {}]}},
        "prefix": "row",
        "min": 1,
        "max": 3,
    }
    assert letters.options["template"] == {
        "input": {"required": {"letter": ["*", {}]}},
        "names": ["x", "y"],
        "min": 0,
    }
    assert mode.options["options"] == [
        {
            "key": "one",
            "inputs": {"required": {"size": ["COMBO", {"default": "small", "options": ["small", "large"]}]}},
        },
        {"key": "none", "inputs": {}},
    ]


def test_inputs_follow_what_is_submitted() -> None:
    resolve = dynamic(INPUTS)
    submitted = {"rows.row2": 0, "rows.row3": 0, "letters.y": 0, "mode": "one", "mode.size": "large"}
    names = [(spec.name, spec.section) for spec in resolve(submitted)]
    assert names == [
        ("plain", "required"),
        ("rows.row0", "required"),
        ("rows.row2", "optional"),
        ("letters.y", "optional"),
        ("mode", "required"),
        ("mode.size", "required"),
    ]
    assert [spec.name for spec in resolve({"mode": "none"})] == ["plain", "rows.row0", "mode"]


def test_values_of_a_group_come_in_the_order_of_their_numbers() -> None:
    given = {"rows.row10": "c", "rows.row2": "b", "rows.row0": "a", "rowsx": 1, "letters.y": 2}
    assert grown(given, "rows") == {"row0": "a", "row2": "b", "row10": "c"}
    assert list(grown(given, "rows")) == ["row0", "row2", "row10"]


def test_matching_inputs_and_outputs_share_a_template() -> None:
    taken, made = matching("a", "kind", "IMAGE,MASK", lazy=True), matched("b", "kind")
    assert taken.options == {"lazy": True, "template": {"template_id": "kind", "allowed_types": "IMAGE,MASK"}}
    assert made.match == "kind"
    assert taken.type == made.type
