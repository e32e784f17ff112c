"""The `/object_info` entries of classes with a schema are those that ComfyUI gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comfyserverless.host.api.io.info import object_info
from tests.unit.host.api.schemas import SCHEMAS, io

EXPECTED: dict[str, Any] = json.loads((Path(__file__).parent / "signatures.json").read_text())
"""Class -> inputs by section as [{name, type, and the options}], hidden, outputs and flags; of ComfyUI 0.8."""


def _entry(schema: Any) -> dict[str, Any]:
    schema.validate()
    schema.finalize()
    entry: dict[str, Any] = json.loads(json.dumps(object_info(schema, "comfy_extras.somewhere")))
    return entry


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_entry_is_the_one_of_comfyui(name: str) -> None:
    expected, entry = EXPECTED[name], _entry(SCHEMAS[name]())
    inputs = {
        section: [{"name": name, "type": kind, **options} for name, (kind, options) in entries.items()]
        for section, entries in entry["input"].items()
        if section != "hidden"
    }
    assert inputs == expected["inputs"]
    assert entry["input"].get("hidden", {}) == expected["hidden"]
    assert entry["is_input_list"] == expected["input_is_list"]
    same = ("output", "output_name", "output_is_list", "category", "output_node", "display_name")
    flags = ("deprecated", "experimental", "api_node")
    assert {key: entry[key] for key in (*same, *flags)} == {key: expected[key] for key in (*same, *flags)}


def test_order_of_inputs_is_that_of_the_declaration() -> None:
    entry = _entry(SCHEMAS["LoraSave"]())
    assert entry["input_order"] == {
        "required": ["filename_prefix", "rank", "lora_type", "bias_diff"],
        "optional": ["model_diff", "text_encoder_diff"],
        "hidden": ["prompt", "extra_pnginfo"],
    }


def test_match_types_of_outputs_are_told() -> None:
    assert _entry(SCHEMAS["ComfySwitchNode"]())["output_matchtypes"] == ["switch"]
    assert "output_matchtypes" not in _entry(SCHEMAS["SplitSigmas"]())


def test_tooltips_aliases_and_price_are_told() -> None:
    schema = io.Schema(
        "X",
        inputs=[io.Int.Input("count", tooltip="how many")],
        outputs=[
            io.Image.Output(tooltip="a picture"),
            io.Combo.Output(options=["a", "b"], is_output_list=True),
        ],
        search_aliases=["y"],
        essentials_category="Basics",
        price_badge=io.PriceBadge("1", io.PriceBadgeDepends(widgets=["count"])),
        is_api_node=True,
    )
    entry = _entry(schema)
    assert entry["input"]["required"]["count"] == ["INT", {"tooltip": "how many"}]
    assert entry["output"] == ["IMAGE", ["a", "b"]]
    assert entry["output_is_list"] == [False, True]
    assert entry["output_tooltips"] == ["a picture", ""]
    assert entry["search_aliases"] == ["y"]
    assert entry["essentials_category"] == "Basics"
    depends = {"widgets": [{"name": "count", "type": "INT"}], "inputs": [], "input_groups": []}
    assert entry["price_badge"] == {"engine": "jsonata", "depends_on": depends, "expr": "1"}
    assert set(entry["input"]["hidden"]) == {"auth_token_comfy_org", "api_key_comfy_org", "comfy_usage_source"}
