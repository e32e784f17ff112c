"""Bring what a node's method returned into the shape of an answer (see `core.modelfn.HOST_FUNCTIONS`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from comfyserverless.core import values as trees
from comfyserverless.core.values import ObjectRef, TensorRef, Value
from comfyserverless.host.blocking import ExecutionBlocker
from comfyserverless.host.jsonsafe import json_safe
from comfyserverless.host.values import Codec

_ANSWER_KEYS = ("result", "ui", "expand")


class Saves(Protocol):
    """Who turns values into trees."""

    def save(self, value: Any) -> Value:
        """Return one value as a tree."""


class Saving:
    """Turn the values of one invocation into trees; `undo` gives up all of them.

    with_room: saves something, again when there is room for it.
    """

    def __init__(self, codec: Codec, with_room: Callable[[Callable[[], Value]], Value]) -> None:
        self._codec = codec
        self._with_room = with_room
        self._refs: list[TensorRef | ObjectRef] = []

    def save(self, value: Any) -> Value:
        """Return one value as a tree."""
        tree = self._with_room(lambda: self._codec.save(value))
        self._refs += [leaf for leaf in trees.walk(tree) if isinstance(leaf, TensorRef | ObjectRef)]
        return tree

    def undo(self) -> None:
        """Give up what was saved: the invocation failed, or nobody wants it."""
        self._codec.free(self._refs)


def answer_of(returned: Any, list_slots: Sequence[bool], codec: Saves) -> dict[str, Value]:
    """Return the answer for one call. list_slots: which output slots are lists (OUTPUT_IS_LIST).

    Raises TypeError for what is no result of a node, CapacityError if the arena is full.
    """
    if isinstance(returned, ExecutionBlocker):
        return {"result": [], "ui": None, "expand": None, "blocked": {"message": _message(returned)}}
    result: Any = returned
    ui = expand = None
    if isinstance(returned, dict):
        result, ui, expand = (returned.get(key) for key in _ANSWER_KEYS)
    if isinstance(result, ExecutionBlocker):
        return {"result": [], "ui": _shown(ui), "expand": None, "blocked": {"message": _message(result)}}
    if result is None:
        result = ()
    if not isinstance(result, tuple | list):
        raise TypeError(
            f"a node must return a tuple with one value for each output, not {type(result).__name__}"
        )
    has_graph = expand is not None
    values = [
        _output(value, slot < len(list_slots) and list_slots[slot], has_graph, codec)
        for slot, value in enumerate(result)
    ]
    return {
        "result": values,
        "ui": _shown(ui),
        "expand": None if expand is None else _graph(expand, codec),
        "blocked": None,
    }


def needed_names(returned: Any) -> list[str]:
    """Return the names of lazy inputs that check_lazy_status asks for; what is no text is ignored."""
    if returned is None:
        return []
    if isinstance(returned, str):
        return [str(returned)]
    return [str(name) for name in returned if isinstance(name, str)]


def _output(value: Any, is_list: bool, has_graph: bool, codec: Saves) -> Value:
    if isinstance(value, ExecutionBlocker):
        return {"__blocked__": _message(value)}
    if has_graph and _is_link(value):
        return {"__link__": [str(value[0]), int(value[1])]}
    if is_list and isinstance(value, list | tuple):
        return [_output(item, False, has_graph, codec) for item in value]
    return codec.save(value)


def _is_link(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], int | float)
    )


def _graph(expand: Any, codec: Saves) -> Value:
    """Return the nodes of an expansion; constants among their inputs may be any values."""
    if not isinstance(expand, Mapping):
        raise TypeError(f"expand must be a graph, not {type(expand).__name__}")
    return {str(node_id): _node(node, codec) for node_id, node in expand.items()}


def _node(node: Any, codec: Saves) -> Value:
    given = node.get("inputs") or {}
    inputs = {
        str(name): [str(value[0]), int(value[1])] if _is_link(value) else codec.save(value)
        for name, value in given.items()
    }
    rest = {str(key): json_safe(value) for key, value in node.items() if key != "inputs"}
    return {**rest, "inputs": inputs}


def _shown(ui: Any) -> Value:
    """Return a ui dict as JSON values; every value is a list there."""
    if ui is None:
        return None
    if not isinstance(ui, Mapping):
        raise TypeError(f"ui must be a dict, not {type(ui).__name__}")
    shown = {str(key): json_safe(value) for key, value in ui.items()}
    return {key: value if isinstance(value, list) else [value] for key, value in shown.items()}


def _message(blocker: ExecutionBlocker) -> str | None:
    return None if blocker.message is None else str(blocker.message)
