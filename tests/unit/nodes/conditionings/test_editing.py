"""Nodes that edit conditionings: what they set on every entry, and what they ask of functions."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import Output
from tests.support.graph_fakes import FakeContext, tensor
from tests.support.graph_lowered import CLIP, output

COND = [[tensor("a", 1, 77, 8), {"pooled_output": None}], [tensor("b", 1, 77, 8), {"strength": 2.0}]]
MASK = tensor("m", 1, 64, 64)


@pytest.mark.parametrize(
    ("name", "inputs", "options"),
    [
        (
            "ConditioningSetArea",
            {"width": 64, "height": 128, "x": 8, "y": 16, "strength": 0.5},
            {"area": [16, 8, 2, 1], "strength": 0.5, "set_area_to_bounds": False},
        ),
        (
            "ConditioningSetAreaPercentage",
            {"width": 0.5, "height": 1.0, "x": 0.25, "y": 0, "strength": 1.0},
            {"area": ["percentage", 1.0, 0.5, 0, 0.25], "strength": 1.0, "set_area_to_bounds": False},
        ),
        ("ConditioningSetAreaStrength", {"strength": 0.25}, {"strength": 0.25}),
        (
            "ConditioningSetMask",
            {"mask": MASK, "strength": 0.5, "set_cond_area": "mask bounds"},
            {"mask": MASK, "mask_strength": 0.5, "set_area_to_bounds": True},
        ),
        (
            "ConditioningSetTimestepRange",
            {"start": 0.25, "end": 0.5},
            {"start_percent": 0.25, "end_percent": 0.5},
        ),
    ],
)
async def test_option_is_set_on_every_entry(name: str, inputs: dict[str, Any], options: dict[str, Any]) -> None:
    edited = await output(name, conditioning=COND, **inputs)
    assert edited == [[cond, {**given, **options}] for cond, given in COND]
    assert "area" not in COND[0][1]


async def test_average_takes_the_first_entry_of_the_origin() -> None:
    ctx = FakeContext()
    mixed = await output(
        "ConditioningAverage",
        ctx,
        conditioning_to=COND,
        conditioning_from=COND[1:],
        conditioning_to_strength=0.5,
    )
    assert [(call.function, call.inputs["origin"]) for call in ctx.calls] == [("cond.average", COND[1][0])] * 2
    assert mixed[1] == [
        Output(ctx.calls[1].id, "cond"),
        {"strength": 2.0, "pooled_output": Output(ctx.calls[1].id, "pooled")},
    ]


@pytest.mark.parametrize(
    ("name", "more"), [("ConditioningAverage", {"conditioning_to_strength": 1.0}), ("ConditioningConcat", {})]
)
async def test_empty_origin_is_a_clear_error(name: str, more: dict[str, Any]) -> None:
    with pytest.raises(PromptError, match="conditioning_from is empty"):
        await output(name, conditioning_to=COND, conditioning_from=[], **more)


async def test_text_models_of_sdxl_get_a_text_each() -> None:
    ctx = FakeContext()
    sizes = {"width": 1, "height": 2, "crop_w": 3, "crop_h": 4, "target_width": 5, "target_height": 6}
    encoded = await output("CLIPTextEncodeSDXL", ctx, clip=CLIP, text_g="big", text_l="little", **sizes)
    (call,) = ctx.calls
    assert call.inputs["text"] == {"g": "big", "l": "little"}
    assert encoded == [[Output(call.id, "cond"), {"pooled_output": Output(call.id, "pooled"), **sizes}]]


async def test_zeroed_out_conditioning_keeps_its_options() -> None:
    ctx = FakeContext()
    silenced = await output("ConditioningZeroOut", ctx, conditioning=COND)
    assert [options.get("strength") for _, options in silenced] == [None, 2.0]
    assert [call.function for call in ctx.calls] == ["cond.zero"] * 2


async def test_refiner_gets_a_size_and_a_score() -> None:
    ctx = FakeContext()
    encoded = await output(
        "CLIPTextEncodeSDXLRefiner", ctx, clip=CLIP, text="big", ascore=7.5, width=1, height=2
    )
    (call,) = ctx.calls
    assert call.inputs["text"] == "big"
    options = {"pooled_output": Output(call.id, "pooled"), "aesthetic_score": 7.5, "width": 1, "height": 2}
    assert encoded == [[Output(call.id, "cond"), options]]


async def test_controls_get_a_text_of_their_own_beside_each_entry() -> None:
    ctx = FakeContext()
    found = await output("CLIPTextEncodeControlnet", ctx, clip=CLIP, conditioning=COND, text="lines")
    (call,) = ctx.calls
    assert (call.function, call.inputs) == ("text.encode", {"clip": CLIP, "text": "lines"})
    given = {
        "cross_attn_controlnet": Output(call.id, "cond"),
        "pooled_output_controlnet": Output(call.id, "pooled"),
    }
    assert found == [[cond, {**options, **given}] for cond, options in COND]
