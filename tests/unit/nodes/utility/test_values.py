"""Plain values in a lowering."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.nodes.utility.values import (
    MAX_TEXT_CHARS,
    check_length,
    take_number,
    take_text,
    take_whole,
)
from tests.support.graph_fakes import FakeContext


async def test_value_that_is_still_being_made_is_waited_for() -> None:
    ctx = FakeContext(results={"text.extract": {"text": "made"}})
    inputs = {
        "a": ctx.emit("text.extract", text="", pattern="", flags=[], mode="", group=0, limit=1).out("text")
    }
    assert await take_text(ctx, inputs, "a") == "made"


@pytest.mark.parametrize(
    ("take", "value"),
    [
        (take_text, 5),
        (take_text, None),
        (take_number, "5"),
        (take_number, None),
        (take_whole, 5.5),
        (take_whole, "5"),
    ],
)
async def test_value_of_another_kind_is_refused_by_name(take: Any, value: Any) -> None:
    with pytest.raises(PromptError, match="Input 'a' takes"):
        await take(FakeContext(), {"a": value}, "a")


async def test_default_is_for_what_was_not_given() -> None:
    assert await take_whole(FakeContext(), {}, "a", 7) == 7
    assert await take_whole(FakeContext(), {"a": True}, "a", 7) == 1


def test_text_has_a_largest_length() -> None:
    check_length(MAX_TEXT_CHARS)
    with pytest.raises(PromptError, match="at most"):
        check_length(MAX_TEXT_CHARS + 1)
