"""Switches and truth values."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.nodes.registry import BUILTIN
from tests.support.graph_fakes import FakeCatalog, FakeContext, tensor
from tests.support.graph_lowered import output


async def _needs(name: str, *calls: dict[str, Any]) -> list[str]:
    declaration = BUILTIN.get(name)
    assert declaration is not None
    assert declaration.check_lazy is not None
    return list(await declaration.check_lazy(FakeContext(), calls))


async def test_switch_asks_for_the_chosen_side_only() -> None:
    assert await _needs("ComfySwitchNode", {"switch": True, "on_true": None, "on_false": None}) == ["on_true"]
    assert await _needs("ComfySwitchNode", {"switch": False, "on_true": None, "on_false": None}) == ["on_false"]


async def test_switch_asks_for_both_sides_if_its_calls_choose_differently() -> None:
    calls = [{"switch": chosen, "on_true": None, "on_false": None} for chosen in (True, False, True)]
    assert await _needs("ComfySwitchNode", *calls) == ["on_true", "on_false"]


async def test_switch_asks_for_nothing_that_is_there_or_not_connected() -> None:
    assert await _needs("ComfySwitchNode", {"switch": True, "on_true": 5, "on_false": None}) == []
    assert await _needs("ComfySwitchNode", {"switch": True, "on_false": None}) == []


async def test_switch_gives_the_chosen_side_or_nothing() -> None:
    assert await output("ComfySwitchNode", switch=True, on_true="yes", on_false=None) == "yes"
    assert await output("ComfySwitchNode", switch=False, on_false="no") == "no"
    assert await output("ComfySwitchNode", switch=True, on_false="no") is None


async def test_soft_switch_takes_the_other_side_if_the_chosen_one_is_not_connected() -> None:
    assert await _needs("ComfySoftSwitchNode", {"switch": True, "on_false": None}) == ["on_false"]
    assert await output("ComfySoftSwitchNode", switch=True, on_false="no") == "no"
    assert await output("ComfySoftSwitchNode", switch=True, on_true="yes", on_false=None) == "yes"


def test_soft_switch_without_sides_is_refused() -> None:
    declaration = BUILTIN.get("ComfySoftSwitchNode")
    assert declaration is not None
    assert declaration.check_inputs is not None
    assert declaration.check_inputs(FakeCatalog(), {"switch": True}) != {}
    assert declaration.check_inputs(FakeCatalog(), {"switch": True, "on_true": None}) == {}


@pytest.mark.parametrize(
    ("node", "values", "result"),
    [
        ("ComfyAndNode", [1, "x", [0]], True),
        ("ComfyAndNode", [1, "", True], False),
        ("ComfyOrNode", [0, None, "x"], True),
        ("ComfyOrNode", [0, 0.0], False),
    ],
)
async def test_truth_values_are_joined_by_pythons_rules(node: str, values: list[Any], result: bool) -> None:
    assert await output(node, **{f"values.value{at}": value for at, value in enumerate(values)}) is result


async def test_truth_value_is_turned_round() -> None:
    assert await output("ComfyNotNode", value="") is True
    assert await output("InvertBooleanNode", value=True) is False


async def test_tensor_is_neither_true_nor_false() -> None:
    with pytest.raises(PromptError, match="neither true nor false"):
        await output("ComfyNotNode", value=tensor("i", 1, 8, 8, 3))


async def test_custom_choice_gives_its_text_and_its_place() -> None:
    declaration = BUILTIN.get("CustomCombo")
    assert declaration is not None
    result = await declaration.lower(FakeContext(), {"choice": "red", "index": 2})
    assert result.outputs == ("red", 2)
    assert {"choice", "index"} <= declaration.checked_inputs  # the server does not know the options


def test_place_of_a_custom_choice_is_taken_but_left_to_the_page() -> None:
    declaration = BUILTIN.get("CustomCombo")
    assert declaration is not None
    assert [spec.name for spec in declaration.inputs] == ["choice"]
    assert declaration.dynamic_inputs is not None
    taken = declaration.dynamic_inputs({"choice": "red", "index": 2, "option1": "red"})
    assert [spec.name for spec in taken] == ["choice", "index"]


def test_one_side_of_a_switch_is_enough() -> None:
    declaration = BUILTIN.get("ComfySwitchNode")
    assert declaration is not None
    assert declaration.dynamic_inputs is not None
    sections = {spec.name: spec.section for spec in declaration.dynamic_inputs({"switch": True})}
    assert sections == {"switch": "required", "on_false": "optional", "on_true": "optional"}
