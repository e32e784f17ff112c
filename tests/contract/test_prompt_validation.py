"""Compare validation with answers recorded from ComfyUI 0.8.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comfyserverless.graph.plan import Validation
from comfyserverless.graph.validation import validate
from tests.support.graph_fakes import RECORDED_CLASSES, FakeCatalog, with_builtin

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "prompt.json").read_text())

#: Where newer cores answer differently from the recorded one, on purpose. Texts are ours everywhere, and the
#: prompt's `details` always sum up the nodes' errors (ComfyUI only those of output nodes).
NEWER_ERROR_TYPES = {"unknown_class": "missing_node_type", "missing_class_type": "missing_node_type"}
NEWER_NODE_ERRORS = {"cycle": {"1": ["dependency_cycle"], "2": ["dependency_cycle"]}}


def _validate(case: str) -> Validation:
    request = RECORDED[case]["request"]
    declarations = with_builtin(*RECORDED_CLASSES)
    return validate(request["prompt"], declarations, FakeCatalog(), request.get("targets"))


def _error_types(node_errors: Any) -> dict[str, list[str]]:
    return {node: [error["type"] for error in entry["errors"]] for node, entry in node_errors.items()}


@pytest.mark.parametrize("case", RECORDED)
def test_prompt_is_accepted_or_refused_as_recorded(case: str) -> None:
    outcome = _validate(case)
    assert (outcome.plan is not None) == (RECORDED[case]["status"] == 200)
    assert (outcome.error is None) == (outcome.plan is not None)


@pytest.mark.parametrize("case", [case for case in RECORDED if RECORDED[case]["error"]])
def test_prompt_error_has_the_recorded_type_and_shape(case: str) -> None:
    error, recorded = _validate(case).error, RECORDED[case]["error"]
    assert error is not None
    assert error["type"] == NEWER_ERROR_TYPES.get(case, recorded["type"])
    assert set(error) == set(recorded)
    if case in NEWER_ERROR_TYPES:
        assert set(error["extra_info"]) == {"node_id", "class_type", "node_title"}
    else:
        assert error["extra_info"] == recorded["extra_info"]


@pytest.mark.parametrize("case", RECORDED)
def test_node_errors_have_the_recorded_types(case: str) -> None:
    expected = NEWER_NODE_ERRORS.get(case, _error_types(RECORDED[case]["node_errors"]))
    assert _error_types(_validate(case).node_errors) == expected


@pytest.mark.parametrize("case", [case for case in RECORDED if RECORDED[case]["node_errors"]])
def test_node_errors_tell_what_was_recorded(case: str) -> None:
    outcome = _validate(case)
    for node_id, recorded in RECORDED[case]["node_errors"].items():
        entry = outcome.node_errors[node_id]
        assert entry["class_type"] == recorded["class_type"]
        assert entry["dependent_outputs"] == recorded["dependent_outputs"]
        for error, expected in zip(entry["errors"], recorded["errors"], strict=True):
            assert set(error) == set(expected)
            assert list(error["extra_info"]) == list(expected["extra_info"])
            for key in ("input_name", "input_config", "received_value", "received_type", "linked_node"):
                assert error["extra_info"].get(key) == expected["extra_info"].get(key), key


def test_load_image_error_text_is_the_recorded_one() -> None:
    (error,) = _validate("load_image_missing").node_errors["1"]["errors"]
    assert error["details"] == RECORDED["load_image_missing"]["node_errors"]["1"]["errors"][0]["details"]


def test_answers_are_json_that_a_browser_reads() -> None:
    for case in RECORDED:
        outcome = _validate(case)
        json.dumps([outcome.error, outcome.node_errors], allow_nan=False)
