"""Make what packs declare into JSON that browsers can read."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

_LEAST_INT, _MOST_INT = -(1 << 63), (1 << 64) - 1


def json_safe(value: Any, depth: int = 50) -> Any:
    """Return a value of JSON types only: infinities become the largest numbers, NaN null, the rest text."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value).encode("utf-8", "replace").decode()
    if isinstance(value, int):
        return int(value) if _LEAST_INT <= value <= _MOST_INT else _finite(float(value))
    if isinstance(value, float):
        return _finite(float(value))
    if depth == 0:
        return None
    if isinstance(value, Mapping):
        return {str(json_safe(str(key))): json_safe(value[key], depth - 1) for key in value}
    if isinstance(value, list | tuple | set | frozenset) or type(value).__name__ in (
        "dict_keys",
        "dict_values",
    ):
        return [json_safe(item, depth - 1) for item in value]
    tolist = getattr(value, "tolist", None)
    return json_safe(tolist(), depth - 1) if callable(tolist) else json_safe(str(value))


def _finite(value: float) -> float | None:
    if math.isnan(value):
        return None
    if math.isinf(value):
        return math.copysign(sys.float_info.max, value)
    return value
