"""Refuse numbers of links that are far beyond what an input declares.

ComfyUI looks at the range of literals only: a number that comes over a link may lie outside, and nodes cope
with that or fail. Here a worker serves many, and a kernel of a million pixels or a million copies would take it
from all of them. So a linked number may miss its range by as much as the range is wide, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import InputSpec


class OutOfReachError(PromptError):
    """A number is far beyond the declared range of the input that it is linked to."""


def check_reach(call: Mapping[str, Value], specs: Mapping[str, InputSpec]) -> None:
    """Check the numbers among the arguments of a call, also those in lists. Raises OutOfReachError."""
    for name, value in call.items():
        spec = specs.get(name)
        if spec is None or spec.type not in ("INT", "FLOAT"):
            continue
        low, high = spec.options.get("min"), spec.options.get("max")
        if low is None or high is None:
            continue
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, int | float) and not low - (high - low) <= each <= high + (high - low):
                raise OutOfReachError(f"Input {name!r} takes {low} to {high}, but got {each}")
