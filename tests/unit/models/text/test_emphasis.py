"""Weights in prompts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.core.errors import PromptError
from comfyserverless.models.text.emphasis import MAX_DEPTH, split_emphasis


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("a cat", [("a cat", 1.0)]),
        ("a (red) cat", [("a ", 1.0), ("red", 1.1), (" cat", 1.0)]),
        ("(red:1.3)", [("red", 1.3)]),
        ("((red))", [("red", 1.1 * 1.1)]),
        ("(a (b:0.5) c)", [("a ", 1.1), ("b", 0.5), (" c", 1.1)]),
        ("(neg:-0.5)", [("neg", -0.5)]),
        ("(a:1.2:1.3)", [("a:1.2", 1.3)]),
        ("(bad:abc)", [("bad:abc", 1.1)]),
        ("(:1.3)", [(":1.3", 1.1)]),
        (r"\(a\)", [("(a)", 1.0)]),
        (r"(a \(b\):1.2)", [("a (b)", 1.2)]),
        ("[a] {b|c}", [("[a] {b|c}", 1.0)]),
        ("(open (inner", [("(open (inner", 1.0)]),
        ("shut) inner)", [("shut) inner)", 1.0)]),
        ("(open (inner)", [("open ", 1.1), ("(inner", 1.1)]),
        ("", []),
        ("()", []),
    ],
)
def test_runs_and_weights_of(text: str, runs: list[tuple[str, float]]) -> None:
    assert split_emphasis(text) == runs


@given(st.text(alphabet="ab ,:\\1.5[]{}"))
def test_text_without_round_brackets_is_one_run(text: str) -> None:
    assert split_emphasis(text) == ([(text, 1.0)] if text else [])


@given(st.text(alphabet="ab ()"), st.integers(0, 4))
def test_balanced_brackets_around_anything_balanced_multiply_its_weights(inner: str, depth: int) -> None:
    balanced = f"({inner.replace('(', '').replace(')', '')}x)"
    wrapped = "(" * depth + balanced + ")" * depth
    expected = 1.1
    for _ in range(depth):
        expected *= 1.1
    assert split_emphasis(wrapped) == [(balanced[1:-1], expected)]


@given(st.text())
def test_any_text_is_split_without_losing_letters(text: str) -> None:
    kept = "".join(run for run, _ in split_emphasis(text))
    letters = [c for c in text if c.isalpha()]
    assert [c for c in kept if c.isalpha()][: len(letters)] == letters or ":" in text


def test_brackets_may_nest_deeply_but_not_without_end() -> None:
    ((text, weight),) = split_emphasis("(" * 400 + "cat" + ")" * 400)
    assert (text, weight) == ("cat", pytest.approx(1.1**400))
    for depth in (MAX_DEPTH + 1, 20_000):
        with pytest.raises(PromptError, match=f"more than {MAX_DEPTH} deep"):
            split_emphasis("(" * depth + "cat" + ")" * depth)


def test_brackets_that_never_close_are_text_however_many() -> None:
    assert split_emphasis("(" * 50_000) == [("(" * 50_000, 1.0)]
