"""LoraSave: what is extracted from what."""

from __future__ import annotations

import pytest

from tests.support.graph_fakes import FakeContext
from tests.support.graph_lowered import CLIP, MODEL, lower

HOW = {"filename_prefix": "a/x", "rank": 3, "lora_type": "standard", "bias_diff": True}


@pytest.mark.parametrize(
    ("inputs", "handles"),
    [
        ({"model_diff": MODEL}, (MODEL, None)),
        ({"text_encoder_diff": CLIP}, (None, CLIP)),
        ({"model_diff": MODEL, "text_encoder_diff": CLIP}, (MODEL, CLIP)),
    ],
)
async def test_differences_that_are_there_become_one_file_without_a_workflow(
    inputs: dict[str, object], handles: tuple[object, object]
) -> None:
    ctx = FakeContext(results={"lora.save": {"files": ["/output/a/.part"]}})
    await lower("LoraSave", ctx, **HOW, **inputs)
    (call,) = ctx.calls
    assert (call.inputs["model"], call.inputs["clip"]) == handles
    assert (call.inputs["rank"], call.inputs["lora_type"], call.inputs["has_biases"]) == (3, "standard", True)
    assert call.inputs["metadata"] == {}
    assert [place.name for place, _, _ in ctx.published] == ["x"]


async def test_nothing_is_saved_of_no_difference() -> None:
    ctx = FakeContext()
    await lower("LoraSave", ctx, **HOW)
    assert not ctx.calls
    assert not ctx.published
