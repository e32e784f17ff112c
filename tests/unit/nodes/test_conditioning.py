"""Text encoding and edits of conditionings."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.core.ids import InvocationId
from comfyserverless.core.values import Output
from comfyserverless.nodes.conditioning import MAX_ENTRIES, MAX_TEXT_CHARS
from tests.support.graph_fakes import FakeContext
from tests.support.graph_lowered import CLIP, output


def cond(name: str, **options: Any) -> list[list[Any]]:
    """Return a conditioning with one entry whose tensor is still being made."""
    return [[Output(InvocationId(name), "cond"), options]]


async def test_text_is_encoded_by_one_invocation_that_is_not_awaited() -> None:
    ctx = FakeContext()
    value = await output("CLIPTextEncode", ctx, clip=CLIP, text="a (cat:1.2)")
    (call,) = ctx.calls
    assert (call.function, call.inputs, call.progress) == (
        "text.encode",
        {"clip": CLIP, "text": "a (cat:1.2)"},
        None,
    )
    assert value == [[Output(call.id, "cond"), {"pooled_output": Output(call.id, "pooled")}]]
    assert ctx.awaited == []


async def test_last_layer_is_set_on_the_handle_only() -> None:
    clip = await output("CLIPSetLastLayer", clip=CLIP, stop_at_clip_layer=-2)
    assert clip.last_layer == -2
    assert clip.files == CLIP.files
    assert CLIP.last_layer is None


async def test_combined_conditionings_keep_all_entries_in_order() -> None:
    one, other = cond("a"), cond("b", area=1)
    assert await output("ConditioningCombine", conditioning_1=one, conditioning_2=other) == one + other
    assert len(one) == len(other) == 1


@pytest.mark.parametrize("value", ["text", None, [1], [["x", {}]], [[Output(InvocationId("a"), "cond")]], {}])
async def test_value_of_another_shape_is_refused(value: object) -> None:
    with pytest.raises(PromptError, match="'conditioning_2' takes a CONDITIONING"):
        await output("ConditioningCombine", conditioning_1=cond("a"), conditioning_2=value)


async def test_conditioning_cannot_be_doubled_without_end() -> None:
    value = cond("a")
    while len(value) < MAX_ENTRIES:
        value = await output("ConditioningCombine", conditioning_1=value, conditioning_2=value)
    with pytest.raises(PromptError, match=f"entries, at most {MAX_ENTRIES} are possible"):
        await output("ConditioningCombine", conditioning_1=value, conditioning_2=value)


async def test_text_that_no_encoder_takes_is_refused_before_it_is_sent() -> None:
    ctx = FakeContext()
    with pytest.raises(PromptError, match=f"at most {MAX_TEXT_CHARS} are possible"):
        await output("CLIPTextEncode", ctx, clip=CLIP, text="a" * (MAX_TEXT_CHARS + 1))
    assert ctx.calls == []
