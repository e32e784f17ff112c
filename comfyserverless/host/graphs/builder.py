"""Build the graph that a node expands to, with ids that are the same for the same call.

The prefix `<node id>.<call index>.<graph index>.` makes ids unique among all nodes of a prompt, and equal
expansions equal, which their cached results are found by.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from comfyserverless.host.bridge import CallInfo, bridge

_LINK_LENGTH = 2


def is_link(obj: Any) -> bool:
    """Tell whether a value is a link: a node's id and the number of its output."""
    if not isinstance(obj, list) or len(obj) != _LINK_LENGTH:
        return False
    return isinstance(obj[0], str) and type(obj[1]) in (int, float)


@dataclass(slots=True)
class _Place:
    """Where prefixes are counted. call: they start again with another one, also those that a pack has set."""

    call: CallInfo
    root: str
    call_index: int
    graphs: itertools.count[int] = field(default_factory=itertools.count)


_place: ContextVar[_Place | None] = ContextVar("graph_prefixes", default=None)


def _current_place() -> _Place:
    call, place = bridge().call, _place.get()
    if place is None or place.call is not call:
        place = _Place(call, call.node_id, call.list_index)
        _place.set(place)
    return place


class Node:
    """A node of a graph in the making."""

    def __init__(self, id: str, class_type: str, inputs: Mapping[str, Any]) -> None:
        self.id = id
        self.class_type = class_type
        self.inputs = dict(inputs)
        self.override_display_id: str | None = None

    def out(self, index: int) -> list[Any]:
        """Return the link to an output."""
        return [self.id, index]

    def set_input(self, key: str, value: Any) -> None:
        """Set an input; None takes it away."""
        if value is None:
            self.inputs.pop(key, None)
        else:
            self.inputs[key] = value

    def get_input(self, key: str) -> Any:
        """Return an input, None if it is not set."""
        return self.inputs.get(key)

    def set_override_display_id(self, override_display_id: str) -> None:
        """Let the page show another node while this one runs."""
        self.override_display_id = override_display_id

    def serialize(self) -> dict[str, Any]:
        """Return the node as it stands in a graph."""
        node: dict[str, Any] = {"class_type": self.class_type, "inputs": self.inputs}
        if self.override_display_id is not None:
            node["override_display_id"] = self.override_display_id
        return node


class GraphBuilder:
    """A graph in the making. prefix: of all its ids; by default one that nothing else in the prompt has."""

    def __init__(self, prefix: str | None = None) -> None:
        self.prefix = self.alloc_prefix() if prefix is None else prefix
        self.nodes: dict[str, Node] = {}
        self.id_gen = 1

    @classmethod
    def set_default_prefix(cls, prefix_root: str, call_index: int, graph_index: int = 0) -> None:
        """Say what prefixes of graphs from now on are made of."""
        _place.set(_Place(bridge().call, prefix_root, call_index, itertools.count(graph_index)))

    @classmethod
    def alloc_prefix(
        cls, root: str | None = None, call_index: int | None = None, graph_index: int | None = None
    ) -> str:
        """Return a prefix that was not given before in this call."""
        place = _current_place()
        root = place.root if root is None else root
        call_index = place.call_index if call_index is None else call_index
        return f"{root}.{call_index}.{next(place.graphs) if graph_index is None else graph_index}."

    def node(self, class_type: str, id: str | None = None, **kwargs: Any) -> Node:
        """Add a node, or return the one that has this id; without one it is numbered."""
        if id is None:
            id, self.id_gen = str(self.id_gen), self.id_gen + 1
        full = self.prefix + id
        if full not in self.nodes:
            self.nodes[full] = Node(full, class_type, kwargs)
        return self.nodes[full]

    def lookup_node(self, id: str) -> Node | None:
        """Return the node of an id, None if there is none."""
        return self.nodes.get(self.prefix + id)

    def finalize(self) -> dict[str, Any]:
        """Return the graph in API form."""
        return {id: node.serialize() for id, node in self.nodes.items()}

    def replace_node_output(self, node_id: str, index: int, new_value: Any) -> None:
        """Put a value where an output is linked; None takes those inputs away."""
        link = [self.prefix + node_id, index]
        for node in self.nodes.values():
            for key, value in list(node.inputs.items()):
                if is_link(value) and value == link:
                    node.set_input(key, new_value)

    def remove_node(self, id: str) -> None:
        """Take a node away. Raises KeyError if there is none."""
        del self.nodes[self.prefix + id]


def add_graph_prefix(
    graph: Mapping[str, Any], outputs: Any, prefix: str
) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Return a graph, and values that may be links into it, with a prefix before all of its ids."""

    def moved(value: Any) -> Any:
        return [prefix + value[0], value[1]] if is_link(value) else value

    nodes = {
        prefix + id: {**node, "inputs": {key: moved(value) for key, value in node["inputs"].items()}}
        for id, node in graph.items()
    }
    return nodes, tuple(moved(value) for value in outputs)
