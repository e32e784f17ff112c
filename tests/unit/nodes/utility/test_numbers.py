"""Nodes about numbers."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.core.ids import InvocationId
from comfyserverless.core.values import Output
from comfyserverless.nodes.registry import BUILTIN
from tests.support.graph_fakes import FakeContext
from tests.support.graph_lowered import lower


async def _outputs(name: str, **inputs: Any) -> list[Any]:
    return list((await lower(name, **inputs)).outputs)


async def test_expression_gives_a_float_an_int_and_a_truth_value() -> None:
    given = await _outputs("ComfyMathExpression", expression="a / b", **{"values.a": 7, "values.b": 2})
    assert given == [3.5, 3, True]
    assert [type(value) for value in given] == [float, int, bool]


async def test_expression_waits_for_a_number_that_is_still_being_made() -> None:
    ctx = FakeContext(results={"sigmas.at_percent": {"sigma": 2.5}})
    made = ctx.emit("sigmas.at_percent", model=None, percent=0.5, is_actual=False)
    inputs = {"expression": "a * 2", "values.a": made.out("sigma")}
    assert (await lower("ComfyMathExpression", ctx, **inputs)).outputs[1] == 5


async def test_expression_refuses_a_text() -> None:
    with pytest.raises(PromptError, match=r"'values\.a' takes a number, but got str"):
        await lower("ComfyMathExpression", expression="a", **{"values.a": "3"})


def test_first_value_of_an_expression_is_needed_and_the_others_exist_as_far_as_submitted() -> None:
    node = BUILTIN.get("ComfyMathExpression")
    assert node is not None
    assert node.dynamic_inputs is not None
    specs = node.dynamic_inputs({"expression": "a", "values.c": ["1", 0]})
    assert [(spec.name, spec.section, spec.type) for spec in specs] == [
        ("expression", "required", "STRING"),
        ("values.a", "required", "FLOAT,INT,BOOLEAN"),
        ("values.c", "optional", "FLOAT,INT,BOOLEAN"),
    ]


@pytest.mark.parametrize(
    ("value", "given"),
    [("12", [12.0, 12]), (" 3.9 ", [3.9, 3]), (True, [1.0, 1]), (-2.7, [-2.7, -2]), ("1e3", [1000.0, 1000])],
)
async def test_number_is_converted(value: Any, given: list[float]) -> None:
    assert await _outputs("ComfyNumberConvert", value=value) == given


@pytest.mark.parametrize("value", ["", "abc", "inf", "nan", None, [1], Output(InvocationId("x"), "y")])
async def test_what_is_no_number_is_refused(value: Any) -> None:
    ctx = FakeContext()
    if isinstance(value, Output):
        ctx = FakeContext(results={"image.invert": {"images": "no"}})
        value = ctx.emit("image.invert", images=None).out("images")
    with pytest.raises(PromptError):
        await lower("ComfyNumberConvert", ctx, value=value)


@pytest.mark.parametrize(
    ("ratio", "megapixels", "multiple", "size"),
    [
        ("1:1 (Square)", 1.0, 8, [1024, 1024]),
        ("16:9 (Widescreen)", 1.0, 32, [1376, 768]),
        ("9:16 (Portrait Widescreen)", 0.5, 8, [544, 968]),
        ("21:9 (Ultrawide)", 0.1, 128, [512, 256]),
    ],
)
async def test_resolution_has_the_ratio_and_the_multiple(
    ratio: str, megapixels: float, multiple: int, size: list[int]
) -> None:
    chosen = {"aspect_ratio": ratio, "megapixels": megapixels, "multiple": multiple}
    assert await _outputs("ResolutionSelector", **chosen) == size


async def test_resolution_is_a_multiple_of_eight_if_nothing_is_said() -> None:
    assert await _outputs("ResolutionSelector", aspect_ratio="3:2 (Photo)", megapixels=1.0) == [1256, 840]


async def test_int_has_at_most_64_bits() -> None:
    assert (await _outputs("ComfyMathExpression", expression="2 ** 64 - a", **{"values.a": 1}))[1] == 2**64 - 1
    for expression in ("2 ** 64 * a", "-(2 ** 63) - a", "1e30 * a", "2 ** 2000 * a"):
        with pytest.raises(PromptError, match="too large"):
            await lower("ComfyMathExpression", expression=expression, **{"values.a": 1})
    with pytest.raises(PromptError, match="too large"):
        await lower("ComfyNumberConvert", value="9" * 30)
