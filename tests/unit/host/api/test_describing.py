"""Classes with a schema as the control process hears of them."""

from __future__ import annotations

from typing import Any

from comfyserverless.core.values import decode, encode
from comfyserverless.host.api.describing import describe_v3, is_v3
from comfyserverless.host.api.io.node import ComfyNode
from tests.unit.host.api.nodes import Plain, Rich, returning
from tests.unit.host.api.schemas import io


def test_flags_and_ends_are_told() -> None:
    info = describe_v3(Rich)
    assert (info.name, info.output_node, info.not_idempotent) == ("Rich", True, True)
    assert (info.is_async, info.has_change_token, info.has_lazy_check) == (True, True, True)
    assert [(output.type, output.is_list) for output in info.outputs] == [("IMAGE", True), ("COMBO", False)]
    assert info.hidden == {"prompt": "PROMPT", "extra_pnginfo": "EXTRA_PNGINFO"}
    assert info.validator is not None
    assert info.validator.names == ("seed", "mode")
    assert (info.validator.takes_all, info.validator.takes_types) == (False, True)


def test_class_that_says_nothing_is_asked_for_nothing() -> None:
    info = describe_v3(Plain)
    assert (info.validator, info.has_change_token, info.has_lazy_check, info.is_async) == (
        None,
        False,
        False,
        False,
    )
    assert [(each.name, each.type, each.section) for each in info.inputs] == [
        ("a", "INT", "required"),
        ("b", "STRING", "optional"),
    ]
    assert info.hidden == {"unique_id": "UNIQUE_ID"}


def test_containers_stand_as_declared_until_something_is_submitted() -> None:
    assert [each.name for each in describe_v3(Rich).inputs] == ["seed", "images", "mode"]
    submitted = {"seed": 1, "images.image0": None, "images.image3": None, "mode": "on"}
    told = {each.name: (each.type, each.section) for each in describe_v3(Rich, submitted).inputs}
    assert told == {
        "seed": ("INT", "required"),
        "images.image0": ("IMAGE", "required"),
        "images.image3": ("IMAGE", "optional"),
        "mode": ("COMBO", "required"),
        "mode.strength": ("FLOAT", "required"),
    }


def test_lazy_part_of_a_container_is_lazy() -> None:
    told = {each.name: each.options for each in describe_v3(Rich, {"mode": "on"}).inputs}
    assert told["mode.strength"] == {"lazy": True}


def test_class_that_takes_everything_declares_what_was_submitted() -> None:
    info = describe_v3(returning(1, accept_all_inputs=True), {"x": 1, "y": None})
    assert [(each.name, each.type, each.section) for each in info.inputs] == [
        ("x", "*", "optional"),
        ("y", "*", "optional"),
    ]


def test_registered_name_comes_before_that_of_the_schema() -> None:
    info = describe_v3(Plain, name="Other", display_name="Shown")
    assert (info.name, info.info["name"], info.info["display_name"]) == ("Other", "Other", "Shown")
    assert describe_v3(Rich, display_name="Shown").info["display_name"] == "Rich node"


def test_wildcard_of_a_pack_is_seen_and_everything_has_a_wire_form() -> None:
    class Any_(str):
        """Differs from nothing."""

        def __ne__(self, other: object) -> bool:
            return False

    class Odd(ComfyNode):
        """Has things in its options that are no JSON."""

        @classmethod
        def define_schema(cls) -> Any:
            """Return the schema."""
            options = {"path": Odd, "pair": (1, 2.5)}
            return io.Schema("Odd", inputs=[io.Custom(Any_("ANY")).Input("x", extra_dict=options)])

    info = describe_v3(Odd)
    (only,) = info.inputs
    assert (only.type, type(only.type), only.matches_any) == ("ANY", str, True)
    assert only.options["pair"] == [1, 2.5]
    assert decode(encode(info.info)) == info.info
    assert not describe_v3(Plain).inputs[0].matches_any


def test_choices_are_those_of_the_moment() -> None:
    files = ["a"]

    class Loader(ComfyNode):
        """Offers files."""

        @classmethod
        def define_schema(cls) -> Any:
            """Return the schema."""
            return io.Schema("Loader", inputs=[io.Combo.Input("file", options=list(files))])

    assert describe_v3(Loader).inputs[0].options["options"] == ["a"]
    files.append("b")
    assert describe_v3(Loader).inputs[0].options["options"] == ["a", "b"]


def test_classes_with_a_schema_are_told_from_others() -> None:
    assert is_v3(Plain)
    assert not is_v3(object)
    assert not is_v3(Plain())
