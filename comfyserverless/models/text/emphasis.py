"""Read prompt weights: `(words)` is 1.1 times, `(words:1.3)` sets 1.3, groups nest, `\\(` is a plain bracket.

The rules follow what ComfyUI's recorded tokens show: a number set by an inner group replaces the outer
weight, square brackets mean nothing, brackets that do not pair are text, and a bad number is text too.
"""

from __future__ import annotations

from collections.abc import Iterator

from comfyserverless.core.errors import PromptError

MAX_DEPTH = 500
"""Brackets in brackets; each level is read anew, and beyond a hundred the weight is without meaning anyway."""

STEP_RATIO = 1.1
"""What one pair of brackets multiplies the weight by."""

_HIDDEN = (("\\)", "\0\1"), ("\\(", "\0\2"))


def split_emphasis(text: str) -> list[tuple[str, float]]:
    """Split a prompt into (text, weight) runs in order; escaped brackets come back as plain ones.

    Raises PromptError for brackets that are nested more than MAX_DEPTH deep.
    """
    return [(reveal(run), weight) for run, weight in weigh(hide(text))]


def hide(text: str) -> str:
    """Put marks in the place of escaped brackets, which `weigh` takes for text."""
    for plain, hidden in _HIDDEN:
        text = text.replace(plain, hidden)
    return text


def reveal(text: str) -> str:
    """Put brackets in the place of the marks of `hide`."""
    for plain, hidden in _HIDDEN:
        text = text.replace(hidden, plain[1])
    return text


def weigh(text: str, weight: float = 1.0) -> Iterator[tuple[str, float]]:
    """Give the runs of a text, in which escaped brackets are hidden. weight: of what is outside of brackets.

    Raises PromptError for brackets that are nested more than MAX_DEPTH deep.
    """
    open_groups = [(top_level_parts(text), weight)]
    while open_groups:
        parts, weight = open_groups[-1]
        part = next(parts, None)
        if part is None:
            open_groups.pop()
        elif len(part) < 2 or part[0] != "(" or part[-1] != ")":
            yield part, weight
        else:
            inner, number = _trailing_number(part[1:-1])
            if len(open_groups) > MAX_DEPTH:
                raise PromptError(f"the prompt's brackets are nested more than {MAX_DEPTH} deep")
            open_groups.append((top_level_parts(inner), weight * STEP_RATIO if number is None else number))


def _trailing_number(text: str) -> tuple[str, float | None]:
    """Split `words:1.3` into its words and number; (text, None) when there is no number at the end."""
    head, colon, tail = text.rpartition(":")
    if not colon or not head:
        return text, None
    try:
        return head, float(tail)
    except ValueError:
        return text, None


def top_level_parts(text: str) -> Iterator[str]:
    """Cut text before each outermost `(` and after the `)` that closes it.

    A stray `)` takes the depth below zero, where brackets are text until they balance again.
    """
    start = depth = 0
    for at, char in enumerate(text):
        if char == "(":
            if depth == 0 and at > start:
                yield text[start:at]
                start = at
            depth += 1
        elif char == ")":
            depth -= 1
            if depth == 0:
                yield text[start : at + 1]
                start = at + 1
    if start < len(text):
        yield text[start:]
