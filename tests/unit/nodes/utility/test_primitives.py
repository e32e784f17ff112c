"""Values that are written into a graph."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from tests.support.graph_lowered import lower, output


@pytest.mark.parametrize(
    ("node", "value"),
    [
        ("PrimitiveInt", 7),
        ("PrimitiveFloat", 0.5),
        ("PrimitiveString", "a"),
        ("PrimitiveStringMultiline", "a\nb"),
        ("PrimitiveBoolean", False),
    ],
)
async def test_primitive_gives_its_value(node: str, value: Any) -> None:
    assert await output(node, value=value) == value


async def test_seed_gives_its_number() -> None:
    assert await output("SeedNode", seed=2**60) == 2**60


async def test_box_gives_its_sides() -> None:
    box = {"x": 1, "y": 2, "width": 30, "height": 40}
    assert await output("PrimitiveBoundingBox", **box) == box


async def test_color_gives_its_number_its_text_and_its_alpha() -> None:
    assert (await lower("ColorToRGBInt", color="#0a9299")).outputs == (0x0A9299, "#0a9299", 1.0)
    assert (await lower("ColorToRGBInt", color="#0a929933")).outputs == (0x0A9299, "#0a929933", 0.2)


@pytest.mark.parametrize("color", ["0a9299", "#0a929", "#xyzxyz", ""])
async def test_other_text_is_no_color(color: str) -> None:
    with pytest.raises(PromptError, match="#RRGGBB"):
        await lower("ColorToRGBInt", color=color)
