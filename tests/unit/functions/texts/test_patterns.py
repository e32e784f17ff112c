"""Regular expressions on the worker."""

from __future__ import annotations

from typing import Any

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.texts import patterns
from comfyserverless.functions.texts.patterns import TextExtract, TextMatch, TextSubstitute


def _extract(text: str, pattern: str, mode: str, group: int = 1, flags: tuple[str, ...] = ()) -> Any:
    given = {"text": text, "pattern": pattern, "flags": flags, "mode": mode, "group": group, "limit": 1000}
    return TextExtract().execute({}, **given)["text"]


def _replace(text: str, pattern: str, replacement: str, count: int = 0, limit: int = 1000) -> Any:
    given = {"text": text, "pattern": pattern, "flags": (), "replacement": replacement}
    return TextSubstitute().execute({}, **given, count=count, limit=limit)["text"]


@pytest.mark.parametrize(
    ("text", "pattern", "flags", "found"),
    [
        ("A cat", "CAT", ("case_insensitive",), True),
        ("A cat", "CAT", (), False),
        ("a\nb", "^b", (), False),
        ("a\nb", "^b", ("multiline",), True),
        ("a\nb", "a.b", (), False),
        ("a\nb", "a.b", ("dotall",), True),
        ("x", "(", (), False),
    ],
)
def test_pattern_is_found_with_its_flags(text: str, pattern: str, flags: tuple[str, ...], found: bool) -> None:
    assert TextMatch().execute({}, text=text, pattern=pattern, flags=flags)["matches"] is found


@pytest.mark.parametrize(
    ("mode", "pattern", "group", "text"),
    [
        ("First Match", r"\w=\d", 1, "a=1"),
        ("First Match", r"z", 1, ""),
        ("All Matches", r"\w=\d", 1, "a=1\nb=2"),
        ("All Matches", r"(\w)=(\d)", 2, "a\nb"),
        ("First Group", r"(\w)=(\d)", 2, "1"),
        ("First Group", r"(\w)=(\d)", 0, "a=1"),
        ("First Group", r"(\w)=(\d)", 3, ""),
        ("First Group", r"(z)?a", 1, ""),
        ("All Groups", r"(\w)=(\d)", 2, "1\n2"),
        ("All Groups", r"\w=\d", 1, ""),
        ("All Groups", r"(", 1, ""),
    ],
)
def test_mode_says_what_is_taken(mode: str, pattern: str, group: int, text: str) -> None:
    assert _extract("a=1 b=2", pattern, mode, group) == text


def test_matches_are_replaced_with_their_groups() -> None:
    assert _replace("a=1 b=2", r"(\w)=(?P<n>\d)", r"\g<n>:\1") == "1:a 2:b"
    assert _replace("aaa", "a", "b", count=2) == "bba"
    assert _replace("abc", "", "-") == "-a-b-c-"
    assert _replace("abc", "^$", "[]") == "abc"


@pytest.mark.parametrize(("pattern", "replacement"), [("(", "x"), ("a", r"\1"), ("(?P<n>a)", r"\g<m>")])
def test_wrong_pattern_or_replacement_is_named(pattern: str, replacement: str) -> None:
    with pytest.raises(PromptError, match="is wrong"):
        _replace("a", pattern, replacement)


def test_search_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "TIME_LIMIT_S", 0.02)
    endless = "(x|xx)+$"
    with pytest.raises(PromptError, match=r"given up after 0\.02 s"):
        TextMatch().execute({}, text="x" * 60 + "!", pattern=endless, flags=())
    with pytest.raises(PromptError, match="given up"):
        _extract("x" * 60 + "!", endless, "All Matches")
    with pytest.raises(PromptError, match="given up"):
        _replace("x" * 60 + "!", endless, "")


def test_result_that_is_too_long_is_refused() -> None:
    with pytest.raises(PromptError, match="more than 100 characters"):
        _replace("x" * 90, "x", "xxx", limit=100)


def test_pattern_that_is_too_long_is_refused() -> None:
    with pytest.raises(PromptError, match="are allowed"):
        _extract("a", "a" * 30_000, "First Match")
