"""Node classes: what they may return, the attributes that V1 code reads, and the class for one call."""

from __future__ import annotations

import asyncio
from abc import ABC
from typing import Any

import pytest

from comfyserverless.host.api.io.node import ComfyNode
from comfyserverless.host.blocking import ExecutionBlocker
from tests.unit.host.api.nodes import Plain, Rich, output_of, returning
from tests.unit.host.api.schemas import io


@pytest.mark.parametrize(
    ("returned", "args"),
    [
        (io.NodeOutput(1, 2), (1, 2)),
        ((1, 2), (1, 2)),
        ([1], (1,)),
        (None, ()),
        ({"result": (3,), "ui": {"a": [1]}}, (3,)),
        ({"ui": {"a": [1]}}, ()),
    ],
)
def test_every_form_of_a_result_becomes_one(returned: Any, args: tuple[Any, ...]) -> None:
    output = output_of(returned)
    assert (output.args, output.result) == (args, args or None)
    assert output.ui == (returned.get("ui") if isinstance(returned, dict) else None)


def test_blocker_as_a_result_blocks_everything() -> None:
    assert output_of(ExecutionBlocker("no")).block_execution == "no"
    assert output_of(ExecutionBlocker(None)).block_execution is True
    assert output_of({"result": ExecutionBlocker("no"), "ui": {}}).block_execution == "no"


def test_other_results_are_type_errors_that_name_the_class() -> None:
    with pytest.raises(TypeError, match="Returning returned a str"):
        output_of("text")


def test_expansion_needs_a_schema_that_announces_it() -> None:
    graph = {"1": {"class_type": "X", "inputs": {}}}
    with pytest.raises(ValueError, match="enable_expand"):
        output_of(io.NodeOutput(expand=graph))
    assert output_of(io.NodeOutput(expand=graph), enable_expand=True).expand == graph


def test_attributes_of_the_first_contract_are_there() -> None:
    assert Plain.RETURN_TYPES == ["INT", "STRING"]
    assert Plain.RETURN_NAMES == ["sum", "STRING"]
    assert (Plain.CATEGORY, Plain.DESCRIPTION, Plain.OUTPUT_NODE) == ("sd", "", False)
    assert (Plain.INPUT_IS_LIST, Plain.OUTPUT_IS_LIST) == (False, [False, False])
    assert Plain.INPUT_TYPES() == {
        "required": {"a": ("INT", {})},
        "optional": {"b": ("STRING", {"multiline": False})},
        "hidden": {"unique_id": ("UNIQUE_ID",)},
    }
    assert (Rich.OUTPUT_NODE, Rich.NOT_IDEMPOTENT, Rich.OUTPUT_IS_LIST) == (True, True, [True, False])
    assert Plain.GET_NODE_INFO_V1()["name"] == "Plain"


def test_method_that_function_names_runs_the_node() -> None:
    result = getattr(Plain(), Plain.FUNCTION)(a=1, b="x")
    assert (result[0], result.result) == (1, (1, "xNone"))
    called = getattr(Rich, Rich.FUNCTION)(seed=1)
    assert asyncio.run(called).args == ({"seed": 1},)


def test_only_what_a_class_says_itself_counts() -> None:
    methods = ("validate_inputs", "fingerprint_inputs", "check_lazy_status")
    assert [Plain.overrides(method) for method in methods] == [False, False, False]
    assert [Rich.overrides(method) for method in methods] == [True, True, True]

    class Heir(Rich):
        """Inherits everything."""

    assert Heir.overrides("validate_inputs")


def test_class_for_a_call_has_its_own_hidden_values_and_keeps_no_state() -> None:
    one, other = Plain.locked_clone({"unique_id": "1"}), Plain.locked_clone({"unique_id": "2"})
    assert (one.hidden.unique_id, other.hidden.unique_id, Plain.hidden.unique_id) == ("1", "2", None)
    assert issubclass(one, Plain)
    assert one.__name__ == "Plain"
    with pytest.raises(AttributeError, match="no state"):
        one.counter = 1  # type: ignore[attr-defined]
    assert not hasattr(Plain, "counter")


def test_class_itself_may_be_marked() -> None:
    made = returning(1)
    made.RELATIVE_PYTHON_MODULE = "custom_nodes.mine"
    assert made.GET_NODE_INFO_V1()["python_module"] == "custom_nodes.mine"
    assert made.locked_clone().RELATIVE_PYTHON_MODULE == "custom_nodes.mine"
    assert Plain.RELATIVE_PYTHON_MODULE is None


def test_schema_is_asked_for_again_by_inputs_but_not_by_attributes() -> None:
    Rich.GET_SCHEMA()
    Rich.calls.clear()
    assert Rich.CATEGORY == "sd"
    assert Rich.locked_clone().cached_schema() is Rich.cached_schema()
    assert Rich.calls == []
    Rich.INPUT_TYPES()
    assert Rich.calls == ["define_schema"]


def test_class_may_be_abstract_too() -> None:
    class Base(ComfyNode, ABC):
        """Has another metaclass among its bases."""

    assert issubclass(Base, ComfyNode)


def test_class_without_its_methods_says_which_are_missing() -> None:
    class Empty(ComfyNode):
        """Says nothing."""

    with pytest.raises(NotImplementedError, match="Empty has no define_schema"):
        Empty.GET_SCHEMA()
    with pytest.raises(NotImplementedError, match="Empty has no execute"):
        Empty.execute()
