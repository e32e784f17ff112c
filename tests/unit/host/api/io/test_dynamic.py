"""Inputs that take several types or bring further inputs: what they are described as."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.host.api.schemas import io


def test_multi_type_names_its_types_once_and_takes_the_widget_of_an_input() -> None:
    plain = io.MultiType.Input("x", [io.Image, io.Mask, io.Image], optional=True)
    assert (plain.get_io_type(), plain.as_dict(), plain.optional) == ("IMAGE,MASK", {}, True)
    widget = io.MultiType.Input(io.Float.Input("x", default=1.0, min=0.0, tooltip="t"), [io.Float, io.Int])
    assert (widget.id, widget.get_io_type()) == ("x", "FLOAT,INT")
    assert widget.as_dict() == {"default": 1.0, "min": 0.0, "tooltip": "t", "widgetType": "FLOAT"}


@pytest.mark.parametrize(
    ("allowed", "said"),
    [(None, "*"), (io.AnyType, "*"), (io.Image, "IMAGE"), ([io.Image, io.Custom("Q")], "IMAGE,Q")],
)
def test_template_of_a_match_type_says_what_is_allowed(allowed: Any, said: str) -> None:
    template = io.MatchType.Template("t", allowed)
    made = io.MatchType.Input("x", template, lazy=True)
    assert made.as_dict() == {"lazy": True, "template": {"template_id": "t", "allowed_types": said}}
    assert io.MatchType.Output(template, display_name="o").get_io_type() == "COMFY_MATCHTYPE_V3"


def test_autogrow_by_names_needs_the_first_of_them() -> None:
    made = io.Autogrow.Input(
        "v", template=io.Autogrow.TemplateNames(io.Int.Input("n", min=1), ["a", "b"], min=1)
    )
    part = {"required": {"n": ("INT", {"forceInput": True, "min": 1})}}
    assert made.as_dict() == {"template": {"input": part, "names": ["a", "b"], "min": 1}}
    assert [each.id for each in made.get_all()] == ["v", "n"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: io.Autogrow.TemplatePrefix(io.Image.Input("i"), prefix="", min=1, max=2),
        lambda: io.Autogrow.TemplatePrefix(io.Image.Input("i"), prefix="i", min=3, max=2),
        lambda: io.Autogrow.TemplatePrefix(io.Image.Input("i"), prefix="i", min=1, max=1000),
        lambda: io.Autogrow.TemplateNames(io.Image.Input("i"), names=[]),
        lambda: io.Autogrow.TemplatePrefix(
            io.Autogrow.Input("g", template=io.Autogrow.TemplatePrefix(io.Image.Input("i"), "i")), "x"
        ),
    ],
)
def test_templates_that_make_no_sense_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="Autogrow"):
        make()


def test_slot_is_named_by_what_is_connected() -> None:
    made = io.DynamicSlot.Input(io.Image.Input("picture", tooltip="t"), [io.Float.Input("strength")])
    assert (made.id, made.optional, made.get_io_type()) == ("picture", True, "COMFY_DYNAMICSLOT_V3")
    assert made.as_dict() == {
        "slotType": "IMAGE",
        "inputs": {"required": {"strength": ("FLOAT", {})}},
        "forceInput": True,
        "tooltip": "t",
    }


def test_group_says_how_many_rows_it_has() -> None:
    made = io.DynamicGroup.Input("rows", [io.String.Input("name")], min=1, max=4, group_name="Row")
    part = {"required": {"name": ("STRING", {"multiline": False})}}
    assert made.as_dict() == {"template": part, "min": 1, "max": 4, "group_name": "Row"}
