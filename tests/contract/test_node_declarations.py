"""Compare the built-in declarations with ComfyUI's, and `/object_info` with a recorded answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comfyserverless.graph.declaration import FileChoices, InputChoices, InputSpec, NodeDeclaration
from comfyserverless.graph.object_info import describe
from comfyserverless.nodes.registry import BUILTIN
from tests.support.graph_fakes import FakeCatalog

DATA = Path(__file__).parent / "data"
SIGNATURES: dict[str, Any] = json.loads((DATA / "node_signatures.json").read_text())


def _declaration(name: str) -> NodeDeclaration:
    declaration = BUILTIN.get(name)
    assert declaration is not None, name
    return declaration


def _signature(spec: InputSpec) -> dict[str, Any]:
    """Write an input as the signature file does."""
    entry: dict[str, Any] = {"name": spec.name, "type": spec.type, **spec.options}
    if isinstance(spec.type, tuple):
        entry |= {"type": "COMBO", "options": list(spec.type)}
    elif isinstance(spec.type, FileChoices | InputChoices):
        entry |= {"type": "COMBO", "file_list": True}
    return entry


def test_every_class_is_compared() -> None:
    assert set(BUILTIN.names()) == set(SIGNATURES)


@pytest.mark.parametrize("name", SIGNATURES)
def test_inputs_are_those_of_comfyui(name: str) -> None:
    sections: dict[str, list[dict[str, Any]]] = {}
    for spec in _declaration(name).inputs:
        sections.setdefault(spec.section, []).append(_signature(spec))
    assert sections == {section: specs for section, specs in SIGNATURES[name]["inputs"].items() if specs}


@pytest.mark.parametrize("name", SIGNATURES)
def test_everything_else_is_that_of_comfyui(name: str) -> None:
    info, expected = describe(_declaration(name), FakeCatalog()), SIGNATURES[name]
    same = [
        "output",
        "output_name",
        "output_is_list",
        "category",
        "output_node",
        "display_name",
        "python_module",
    ]
    assert {key: info[key] for key in same} == {key: expected[key] for key in same}
    assert info["input"].get("hidden", {}) == expected["hidden"]
    assert info.get("deprecated", False) == expected["deprecated"]
    assert info.get("experimental", False) == expected["experimental"]
    assert info["name"] == name


def test_object_info_of_ksampler_equals_the_recorded_one() -> None:
    recorded = json.loads((DATA / "object_info_ksampler.json").read_text())["KSampler"]
    info = describe(_declaration("KSampler"), FakeCatalog())
    newer = {"is_input_list": False, "has_intermediate_output": False, "search_aliases": [], "description": ""}
    assert info == recorded | newer
    assert list(info["input"]["required"]) == list(recorded["input"]["required"])


def test_newer_combos_have_their_choices_among_the_options() -> None:
    info = describe(_declaration("CaseConverter"), FakeCatalog())
    choices = ["UPPERCASE", "lowercase", "Capitalize", "Title Case"]
    assert info["input"]["required"]["mode"] == ["COMBO", {"multiselect": False, "options": choices}]


def test_types_that_follow_inputs_are_told_apart() -> None:
    info = describe(_declaration("StartLoop"), FakeCatalog())
    assert info["output_matchtypes"] == [None, None, None, "item", "value"]
    assert info["input"]["optional"]["initial_iteration_value"][1]["template"]["template_id"] == "value"


def test_what_loops_expand_to_is_for_developers_only() -> None:
    hidden = {name for name in SIGNATURES if describe(_declaration(name), FakeCatalog()).get("dev_only")}
    assert hidden == {"LoopRun", "LoopIteration", "LoopResult"}
