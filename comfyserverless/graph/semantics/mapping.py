"""Map a node over lists of values: which calls it gets for what its inputs hold.

Every input holds a list of values; most hold one. A node runs once for each position, shorter lists repeat
their last value, unless it takes lists: then it runs once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import NodeDeclaration
from comfyserverless.graph.lowering import Blocked, Items

Inputs = Mapping[str, Sequence[Value]]
"""The values that each input holds, by name."""


class EmptyListError(PromptError):
    """An input holds no value, and another one does: there is nothing to repeat."""

    shown_as: ClassVar[str] = "IndexError"


def values_of(edge: Value) -> tuple[Value, ...]:
    """Return the values that are on an edge."""
    return edge.values if type(edge) is Items else (edge,)


def edge_of(values: Sequence[Value]) -> Value:
    """Return what an edge holds for some values; one is written plainly."""
    return values[0] if len(values) == 1 else Items(tuple(values))


def calls_of(inputs: Inputs, declaration: NodeDeclaration) -> list[dict[str, Value]]:
    """Return the arguments of each call of a node. Raises EmptyListError naming the input.

    Without inputs, or if all of them are empty, it is one call without arguments. Hidden inputs hold one value
    each: a node that has some is not called without the others.
    """
    if declaration.input_is_list:
        return [{name: list(values) for name, values in inputs.items()}]
    hidden = 1 if declaration.hidden else 0
    count = max([hidden, *(len(values) for values in inputs.values())])
    if count == 0 or not inputs:
        return [{}]
    for name, values in inputs.items():
        if not values:
            raise EmptyListError(f"Input {name!r} got an empty list, and there is no value to repeat")
    return [
        {name: values[min(index, len(values) - 1)] for name, values in inputs.items()} for index in range(count)
    ]


def blocker_in(call: Mapping[str, Value], declaration: NodeDeclaration) -> Blocked | None:
    """Return the first blocked value among the arguments of a call, None if it may run."""
    for value in call.values():
        for each in value if declaration.input_is_list else (value,):
            if type(each) is Blocked:
                return each
    return None
