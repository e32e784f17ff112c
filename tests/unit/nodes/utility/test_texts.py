"""Nodes about texts."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.nodes.utility.values import MAX_TEXT_CHARS
from tests.support.graph_fakes import FakeContext, tensor
from tests.support.graph_lowered import output


@pytest.mark.parametrize(
    ("node", "inputs", "result"),
    [
        ("StringConcatenate", {"string_a": "a", "string_b": "b", "delimiter": ", "}, "a, b"),
        ("StringSubstring", {"string": "abcdef", "start": 1, "end": -1}, "bcde"),
        ("StringLength", {"string": "äöü"}, 3),
        ("CaseConverter", {"string": "a Cat", "mode": "UPPERCASE"}, "A CAT"),
        ("CaseConverter", {"string": "a Cat", "mode": "lowercase"}, "a cat"),
        ("CaseConverter", {"string": "a Cat", "mode": "Capitalize"}, "A cat"),
        ("CaseConverter", {"string": "a cat", "mode": "Title Case"}, "A Cat"),
        ("StringTrim", {"string": " a ", "mode": "Both"}, "a"),
        ("StringTrim", {"string": " a ", "mode": "Left"}, "a "),
        ("StringTrim", {"string": " a ", "mode": "Right"}, " a"),
        ("StringReplace", {"string": "a cat", "find": "cat", "replace": "dog"}, "a dog"),
        ("StringContains", {"string": "A Cat", "substring": "cat", "case_sensitive": True}, False),
        ("StringContains", {"string": "A Cat", "substring": "cat", "case_sensitive": False}, True),
        (
            "StringCompare",
            {"string_a": "Cat", "string_b": "ca", "mode": "Starts With", "case_sensitive": False},
            True,
        ),
        (
            "StringCompare",
            {"string_a": "Cat", "string_b": "at", "mode": "Ends With", "case_sensitive": True},
            True,
        ),
        (
            "StringCompare",
            {"string_a": "Cat", "string_b": "cat", "mode": "Equal", "case_sensitive": True},
            False,
        ),
        (
            "StringCompare",
            {"string_a": "Cat", "string_b": "cat", "mode": "Equal", "case_sensitive": False},
            True,
        ),
    ],
)
async def test_text_is_changed_or_judged(node: str, inputs: dict[str, Any], result: Any) -> None:
    assert await output(node, **inputs) == result


async def test_number_instead_of_a_text_is_refused() -> None:
    with pytest.raises(PromptError, match="'string' takes a STRING, but got int"):
        await output("StringLength", string=5)


async def test_text_is_formatted_as_python_formats() -> None:
    values = {"values.a": 0.5, "values.b": "x", "values.c": [1, {"k": 2}]}
    pattern = "{{{a:.3f}}} {b:>3}|{c[1][k]}|{b!r}"
    assert await output("StringFormat", f_string=pattern, **values) == "{0.500}   x|2|'x'"


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("{z}", "there is no value 'z'"),
        ("{a.__class__}", "attribute"),
        ("{a[0].__class__}", "cannot be formatted"),
        ("{a:>99999999999999}", "characters wide"),
        ("{a:{b}}", "characters wide"),
        ("{", "cannot be formatted"),
        ("{}", "cannot be formatted"),
        ("{i}", "no text and no number"),
    ],
)
async def test_pattern_that_cannot_be_filled_is_refused(pattern: str, problem: str) -> None:
    values = {"values.a": "x", "values.b": 10**9, "values.i": tensor("i", 1, 8, 8, 3)}
    with pytest.raises(PromptError, match=problem):
        await output("StringFormat", f_string=pattern, **values)


async def test_text_that_would_be_too_long_is_refused_before_it_is_made() -> None:
    half = "x" * (MAX_TEXT_CHARS // 2)
    with pytest.raises(PromptError, match="at most"):
        await output("StringConcatenate", string_a=half, string_b=half, delimiter="--")
    with pytest.raises(PromptError, match="at most"):
        await output("StringReplace", string=half, find="x", replace=half)
    with pytest.raises(PromptError, match="at most"):
        await output("StringFormat", f_string="{a:10000}" * 500, **{"values.a": "x"})


@pytest.mark.parametrize(
    ("text", "key", "result"),
    [
        ('{"a": "x"}', "a", "x"),
        ('Here it is:\n```json\n{"a": 1.5}\n```', "a", "1.5"),
        ('{broken} {"a": {"b": [1, "ä"]}}', "a", '{"b": [1, "ä"]}'),
        ('{"a": null}', "a", ""),
        ('{"a": 1}', "b", ""),
        ("[1, 2]", "a", ""),
        ("no JSON", "a", ""),
        ("{" * 10_000, "a", ""),
        ('{"a":' * 10_000, "a", ""),
    ],
)
async def test_value_is_taken_out_of_json(text: str, key: str, result: str) -> None:
    assert await output("JsonExtractString", json_string=text, key=key) == result


async def test_json_is_written_with_an_indent_of_two_unless_told() -> None:
    assert await output("ConvertDictionaryToString", dictionary={"a": "ä"}) == '{\n  "a": "ä"\n}'
    assert await output("ConvertArrayToString", array=[1, 2], indent=0) == "[1, 2]"


async def test_what_has_no_json_is_refused() -> None:
    with pytest.raises(PromptError, match="takes a dict, but got list"):
        await output("ConvertDictionaryToString", FakeContext(), dictionary=[1])
    with pytest.raises(PromptError, match="no words"):
        await output("ConvertArrayToString", array=[tensor("i", 1)])
