"""Make values safe to show as JSON in a browser: no NaN, no Infinity, no endless nesting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_MAX_DEPTH = 40
#: Python refuses to write longer numbers as text.
_MAX_INT_BITS = 12_000
_KINDS = {dict: "an object", list: "an array", str: "a text", int: "a number", float: "a number"}
_TOO_LONG = "(a number too long to show)"
_TOO_DEEP = "(nested too deeply to show)"


def json_safe(value: Any, _depth: int = 0) -> Any:
    """Copy a value into JSON types: tuples become lists, non-finite numbers go.

    A dict entry with a non-finite number is dropped (an option without a bound is what it means); elsewhere
    the number becomes its text.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _MAX_INT_BITS else _TOO_LONG
    if _depth >= _MAX_DEPTH:
        return _TOO_DEEP
    if isinstance(value, Mapping):
        return {
            str(key): json_safe(item, _depth + 1) for key, item in value.items() if not _is_non_finite(item)
        }
    if isinstance(value, list | tuple):
        return [json_safe(item, _depth + 1) for item in value]
    return str(value)


def _is_non_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def brief(value: Any, max_chars: int = 200) -> str:
    """Show a value for a message in about `max_chars` characters at most."""
    text = repr(json_safe(value))
    return text if len(text) <= max_chars else f"{text[:max_chars]}..."


def json_kind(value: Any) -> str:
    """Name the JSON type of a parsed value, as people who write JSON know it."""
    if isinstance(value, bool):
        return "a boolean"
    return next((name for kind, name in _KINDS.items() if isinstance(value, kind)), "null")
