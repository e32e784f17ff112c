"""Turn literals of a prompt into their declared types, with Python's conversions as ComfyUI does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

WRAPPER_KEY = "__value__"
"""A literal that would read as a link (a list) is submitted as an object with this key."""


#: Python quotes the whole text in some messages.
_MAX_REASON_CHARS = 300


class CoercionError(ValueError):
    """A literal cannot be converted; the message says why."""


def unwrap(value: Any) -> Any:
    """Return the literal inside `{"__value__": ...}`, or the value itself."""
    return value[WRAPPER_KEY] if isinstance(value, dict) and WRAPPER_KEY in value else value


def coerce(kind: Any, value: Any) -> Any:
    """Convert a literal to INT, FLOAT, STRING or BOOLEAN; other types pass unchanged.

    INT truncates and reads text, STRING shows anything as text, BOOLEAN is truthiness (the text "false" is
    true). FLOAT must be finite: NaN and Infinity are no JSON. Raises CoercionError.
    """
    convert = _CONVERSIONS.get(kind) if isinstance(kind, str) else None
    if convert is None:
        return value
    try:
        return convert(value)
    except RecursionError as exc:
        raise CoercionError("the value is nested too deeply") from exc
    except (ValueError, TypeError, OverflowError) as exc:
        raise CoercionError(str(exc)[:_MAX_REASON_CHARS]) from exc


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not a finite number")
    return number


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {"INT": int, "FLOAT": _finite, "STRING": str, "BOOLEAN": bool}
