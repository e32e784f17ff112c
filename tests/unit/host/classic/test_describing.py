"""Describing classes of the first contract."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest

from comfyserverless.host.classic.contract import CONTRACT
from comfyserverless.host.classic.describing import describe
from comfyserverless.host.contract import ClassEntry, HiddenValues


class Wild(str):
    """A type that differs from none."""

    def __ne__(self, other: object) -> bool:
        return False


class AnyKey(dict[str, Any]):
    """Inputs of any name."""

    def __contains__(self, key: object) -> bool:
        return True

    def __getitem__(self, key: str) -> Any:
        return (Wild("anything"), {"tooltip": key})


class Plain:
    CATEGORY = "here"
    DESCRIPTION = "Does it"
    RETURN_TYPES: ClassVar[tuple[Any, ...]] = ("IMAGE", Wild("x"), ["a", "b"])
    RETURN_NAMES = ("picture",)
    OUTPUT_TOOLTIPS = ("what comes out",)
    OUTPUT_IS_LIST = (True, False, False)
    FUNCTION = "run"
    OUTPUT_NODE = True
    DEPRECATED = True
    SEARCH_ALIASES: ClassVar[list[str]] = ["paint"]

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {
            "required": {
                "count": ("INT", {"default": 1, "max": float("inf"), "min": float("-inf")}),
                "mode": (["a", "b"],),
                "odd": "FLOAT",
            },
            "optional": {"extra": (Wild("*"), {"lazy": True})},
            "hidden": {"prompt": "PROMPT", "wrapped": ("PROMPT",)},
        }

    @classmethod
    def VALIDATE_INPUTS(cls, count: int, input_types: dict[str, str]) -> bool | str:
        return True if count else f"count is {count}, of {input_types}"

    def run(self) -> None:
        """Do nothing."""


class Open(Plain):
    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {}, "optional": AnyKey()}

    async def run(self) -> None:
        """Do nothing, later."""


def entry(cls: Any) -> ClassEntry:
    return ClassEntry(cls.__name__, cls, "custom_nodes.pack", "Shown")


def test_class_is_described_for_validation() -> None:
    info = describe(entry(Plain), None)
    by_name = {each.name: each for each in info.inputs}
    assert list(by_name) == ["count", "mode", "odd", "extra"]
    assert by_name["mode"].type == ["a", "b"]
    assert by_name["odd"].type == "FLOAT"
    assert by_name["extra"].section == "optional"
    assert by_name["extra"].matches_any
    assert not by_name["count"].matches_any
    assert [each.type for each in info.outputs] == ["IMAGE", "x", ["a", "b"]]
    assert [each.matches_any for each in info.outputs] == [False, True, False]
    assert [each.is_list for each in info.outputs] == [True, False, False]
    assert info.hidden == {"prompt": "PROMPT"}
    assert info.validator is not None
    assert (info.validator.names, info.validator.takes_types) == (("count", "input_types"), True)
    assert (info.output_node, info.is_async, info.has_lazy_check) == (True, False, False)


def test_entry_for_the_page_has_comfyuis_fields_and_is_json() -> None:
    info = json.loads(json.dumps(describe(entry(Plain), None).info, allow_nan=False))
    assert info["input"]["required"]["count"][1]["max"] == pytest.approx(1.7976931348623157e308)
    assert info["input_order"]["required"] == ["count", "mode", "odd"]
    assert info["output"] == ["IMAGE", "x", ["a", "b"]]
    assert info["output_name"] == ["picture"]
    assert info["output_is_list"] == [True, False, False]
    assert info["output_tooltips"] == ["what comes out"]
    assert info["python_module"] == "custom_nodes.pack"
    assert info["display_name"] == "Shown"
    assert info["deprecated"] is True
    assert info["search_aliases"] == ["paint"]
    assert "experimental" not in info


def test_inputs_of_any_name_are_those_that_were_submitted() -> None:
    info = describe(entry(Open), {"first": None, "second": 3})
    assert [(each.name, each.section, each.matches_any) for each in info.inputs] == [
        ("first", "optional", True),
        ("second", "optional", True),
    ]
    assert info.inputs[0].options == {"tooltip": "first"}
    assert info.is_async
    assert describe(entry(Open), None).inputs == ()


def test_validator_gets_what_it_names() -> None:
    given = {"count": 0, "mode": "a"}
    assert CONTRACT.check(entry(Plain), given, {"odd": "INT"}) == "count is 0, of {'odd': 'INT'}"
    assert CONTRACT.check(entry(Plain), {"count": 1}, {}) is True


def test_hidden_arguments_come_with_the_others_and_as_lists_where_all_do() -> None:
    class Lists(Plain):
        INPUT_IS_LIST = True

    hidden = HiddenValues({"UNIQUE_ID": "7"}, {"node": "UNIQUE_ID", "odd": "NO_SUCH_TAG"})
    assert CONTRACT.arguments(entry(Plain), "execute", {"a": 1}, hidden) == {"a": 1, "node": "7", "odd": None}
    assert CONTRACT.arguments(entry(Lists), "execute", {"a": [1]}, hidden) == {
        "a": [1],
        "node": ["7"],
        "odd": [None],
    }


def test_class_that_takes_lists_is_asked_with_lists() -> None:
    class Lists(Plain):
        INPUT_IS_LIST = True

        @classmethod
        def VALIDATE_INPUTS(cls, count: list[int]) -> bool | str:
            return count == [1]

        @classmethod
        def IS_CHANGED(cls, **given: list[Any]) -> list[Any]:
            return sorted(given.items())

    hidden = HiddenValues({"UNIQUE_ID": "7"}, {"node": "UNIQUE_ID"})
    assert CONTRACT.check(entry(Lists), {"count": 1, "mode": "a"}, {}) is True
    assert CONTRACT.change_token(entry(Lists), {"count": 1}, hidden) == [("count", [1]), ("node", ["7"])]
