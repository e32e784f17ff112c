"""Errors name the thing and what is allowed instead, in a bounded number of words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from comfyserverless.graph.problems import missing_node_type
from comfyserverless.graph.validation import validate
from comfyserverless.nodes.registry import BUILTIN
from tests.support.graph_fakes import FakeCatalog


def prompt_error(prompt: Any) -> dict[str, Any]:
    error = validate(prompt, BUILTIN, FakeCatalog()).error
    assert error is not None
    return error


def test_unknown_class_is_told_together_with_the_known_ones() -> None:
    message = missing_node_type("1", "KSamplr", "", ["LoadImage", "KSampler"])["message"]
    assert message == "Node class 'KSamplr' does not exist here; classes: LoadImage, KSampler"


def test_of_very_many_classes_those_of_like_names_are_told() -> None:
    error = prompt_error({"1": {"class_type": "KSamplr", "inputs": {}}})
    assert "'KSamplr' does not exist here; classes of like names: KSampler" in error["message"]
    assert "LoadImage" not in error["message"]
    assert missing_node_type("1", "Nope", "", BUILTIN.names())["message"].endswith("does not exist here")


def test_huge_class_and_node_id_are_cut_in_the_texts() -> None:
    error = prompt_error({"i" * 100_000: {"class_type": "c" * 100_000, "inputs": {}}})
    assert len(error["message"]) + len(error["details"]) < 3_000
    assert error["extra_info"]["class_type"] == "c" * 100_000


@pytest.mark.parametrize("text", ["null", "true", "5", "1.5", '"x"', "[1]"])
def test_wrong_type_is_named_as_in_json(text: str) -> None:
    names = {"n": "null", "t": "a boolean", "5": "a number", "1": "a number", '"': "a text", "[": "an array"}
    assert prompt_error(json.loads(text))["details"] == f"got {names[text[0]]}"
