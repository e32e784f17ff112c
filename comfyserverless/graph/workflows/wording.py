"""Change texts as the page does when it sends them: random picks, comments, and tokens for dates and values.

Only widgets with `dynamicPrompts` have picks and comments; only the file names of nodes that save have tokens.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

SAVING_CLASSES = frozenset(
    {
        "SaveImage",
        "SaveImageAdvanced",
        "SaveVideo",
        "SaveAnimatedWEBP",
        "SaveAnimatedPNG",
        "SaveWEBM",
        "SaveAudio",
        "SaveAudioMP3",
        "SaveAudioOpus",
        "SaveGLB",
        "SaveSVGNode",
        "SaveLatent",
        "CLIPSave",
        "VAESave",
        "ModelSave",
        "LoraSave",
    }
)
"""Classes in whose `filename_prefix` the page replaces tokens (frontend 1.58)."""

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_ESCAPED = re.compile(r"\\([{}|])")
_TOKEN = re.compile(r"%([^%]+)%")
_DATE_PART = re.compile(r"d+|M+|y+|h+|m+|s+")
_UNSAFE = re.compile(r'[/?<>\\:*|"\x00-\x1f\x7f]')


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a conversion takes from outside: local time (None: dates stay tokens), and who picks."""

    now: datetime | None = None
    chance: random.Random = field(default_factory=lambda: random.Random(0))


def picked(text: str, chance: random.Random) -> str:
    """Remove comments, and take one of the choices of each `{a|b}`, inner ones too; `\\{` is a plain brace."""
    text = _COMMENT.sub("", text)
    parts, position = _pick(text, 0, chance, is_inner=False)
    assert position == len(text)
    return _ESCAPED.sub(r"\1", parts)


def _pick(text: str, position: int, chance: random.Random, *, is_inner: bool) -> tuple[str, int]:
    """Return the text up to the end of a choice group (or of all), and the position after it."""
    choices = [""]
    while position < len(text):
        char = text[position]
        position += 1
        if char == "\\" and position < len(text):
            choices[-1] += char + text[position]
            position += 1
        elif char == "{":
            inner, position = _pick(text, position, chance, is_inner=True)
            choices[-1] += inner
        elif char == "}" and is_inner:
            break
        elif char == "|" and is_inner:
            choices.append("")
        else:
            choices[-1] += char
    return chance.choice(choices), position


def with_tokens(text: str, value_of: Callable[[str, str], Any], now: datetime | None) -> str:
    """Replace `%date:FORMAT%` and `%Node.widget%`.

    value_of: (node name, widget name) -> value, None if there is none; then the token stays.
    """

    def replaced(match: re.Match[str]) -> str:
        token = match[1]
        if token.startswith("date:"):
            return match[0] if now is None else _date(token.removeprefix("date:"), now)
        name, dot, widget = token.partition(".")
        value = value_of(name, widget) if dot else None
        return match[0] if value is None else _UNSAFE.sub("_", _as_text(value))

    return _TOKEN.sub(replaced, text).replace("%date:%", "")


def _as_text(value: Any) -> str:
    """Write a value as JavaScript does."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _date(pattern: str, now: datetime) -> str:
    parts = {
        "d": str(now.day),
        "dd": f"{now.day:02}",
        "M": str(now.month),
        "MM": f"{now.month:02}",
        "yy": f"{now.year % 100:02}",
        "yyyy": str(now.year),
        "h": str(now.hour),
        "hh": f"{now.hour:02}",
        "m": str(now.minute),
        "mm": f"{now.minute:02}",
        "s": str(now.second),
        "ss": f"{now.second:02}",
    }
    return _DATE_PART.sub(lambda match: parts.get(match[0], match[0]), pattern)
