"""Node descriptions for the page: sections, current choices, and only JSON that a browser reads."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from comfyserverless.graph.choices import Choices
from comfyserverless.graph.declaration import FileChoices, InputChoices, InputSpec, OutputSpec
from comfyserverless.graph.object_info import describe, describe_with
from comfyserverless.nodes.registry import BUILTIN
from comfyserverless.nodes.specs import socket
from tests.support.graph_fakes import FakeCatalog, node_class


def test_all_builtin_classes_are_valid_json_with_text_modules() -> None:
    choices = Choices(FakeCatalog())
    declarations = [BUILTIN.get(name) for name in BUILTIN.names()]
    document = {d.name: describe_with(d, choices) for d in declarations if d is not None}
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert all(isinstance(info["python_module"], str) for info in document.values())


def test_combos_over_files_list_what_is_there_now() -> None:
    combo = node_class(
        "Pick",
        InputSpec("a", FileChoices("loras")),
        InputSpec("b", InputChoices("image"), {"image_upload": True}),
    )
    catalog = FakeCatalog(files={"loras": ["b", "a"]})
    assert describe(combo, catalog)["input"]["required"] == {
        "a": [["a", "b"], {}],
        "b": [[], {"image_upload": True}],
    }
    catalog.uploads["x.png"] = None  # type: ignore[assignment]
    assert describe(combo, catalog)["input"]["required"]["b"][0] == ["x.png"]


def test_non_finite_options_are_dropped() -> None:
    wild = node_class(
        "Wild", InputSpec("x", "FLOAT", {"default": 0.5, "min": -math.inf, "max": math.inf, "step": math.nan})
    )
    assert describe(wild, FakeCatalog())["input"]["required"]["x"] == ["FLOAT", {"default": 0.5}]


def test_sections_and_their_order_are_told() -> None:
    both = node_class(
        "Both",
        socket("b", "IMAGE"),
        socket("a", "MASK"),
        InputSpec("c", "VAE", section="optional"),
        hidden={"prompt": "PROMPT"},
    )
    info = describe(both, FakeCatalog())
    assert info["input_order"] == {"required": ["b", "a"], "optional": ["c"], "hidden": ["prompt"]}
    assert info["input"]["hidden"] == {"prompt": "PROMPT"}


def test_flags_and_tooltips_are_told_only_when_set() -> None:
    plain = describe(node_class("Plain"), FakeCatalog())
    assert not {"deprecated", "experimental", "output_tooltips"} & set(plain)
    picture = OutputSpec("IMAGE", "picture", "What it shows")
    rich = replace(node_class("Rich", deprecated=True, experimental=True), outputs=(picture,))
    info = describe(rich, FakeCatalog())
    assert info["output_tooltips"] == ["What it shows"]
    assert info["output_name"] == ["picture"]
    assert info["deprecated"] is info["experimental"] is True
