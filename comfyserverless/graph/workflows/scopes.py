"""Open subgraphs: each instance is a scope of its own, with the values that the outside gives its widgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from comfyserverless.graph.workflows.document import INPUT_NODE, Graph, Node, Slot, Workflow, WorkflowError
from comfyserverless.graph.workflows.virtual import PRIMITIVE

_MAX_DEPTH = 32
_PREVIEW = "$$"
"""Beginning of names that stand for previews, not for widgets, among what an instance shows."""

WidgetKey = tuple[str, str]
"""Node id and widget name."""


@dataclass(slots=True)
class Scope:
    """The outer graph, or the inside of one instance.

    path: ids of the instances around it; given: values that primitives or instances give to widgets;
    promoted: values of the instance's own widgets, by input name of the definition; shown: inner widgets that
    the instance shows as its own.
    """

    graph: Graph
    path: tuple[str, ...] = ()
    parent: Scope | None = None
    host: Node | None = None
    given: dict[WidgetKey, Any] = field(default_factory=dict)
    promoted: dict[str, Any] = field(default_factory=dict)
    shown: frozenset[WidgetKey] = frozenset()

    def id_of(self, node: Node) -> str:
        """Return the id under which a node runs: `12`, or `57:12` inside an instance."""
        return ":".join((*self.path, node.id))


class Scopes:
    """All scopes of a workflow, opened when they are needed."""

    def __init__(self, workflow: Workflow) -> None:
        self._definitions = workflow.definitions
        self.root = Scope(workflow.root)
        self.root.given.update(_primitive_values(workflow.root))
        #: By path.
        self._inner: dict[tuple[str, ...], Scope] = {}

    def opened(self) -> Iterator[Scope]:
        """Yield the insides of the instances that were opened so far."""
        yield from list(self._inner.values())

    def is_instance(self, node: Node) -> bool:
        """Tell whether a node stands for a subgraph."""
        return node.type in self._definitions

    def inner(self, scope: Scope, node: Node) -> Scope:
        """Return the inside of an instance. Raises WorkflowError when definitions contain themselves."""
        path = (*scope.path, node.id)
        if path not in self._inner:
            if len(path) > _MAX_DEPTH:
                raise WorkflowError(f"the subgraph of node {scope.id_of(node)} contains itself")
            self._inner[path] = self._open(scope, node, path)
        return self._inner[path]

    def _open(self, scope: Scope, host: Node, path: tuple[str, ...]) -> Scope:
        graph = self._definitions[host.type]
        opened = Scope(graph, path, scope, host, shown=frozenset(_proxies(host)))
        names = [port.name for index, port in enumerate(graph.inputs) if self._has_widget(graph, index)]
        opened.promoted.update(_promoted_values(host, names))
        proxies = _proxies(host)
        if isinstance(host.values, list):
            for key, value in zip(proxies, host.values, strict=False):
                _give(opened, key, value)
        for (node_id, name), value in scope.given.items():
            for key in _named(graph, proxies, name) if node_id == host.id else ():
                _give(opened, key, value)
        opened.given.update(_primitive_values(graph))
        return opened

    def _has_widget(self, graph: Graph, index: int, depth: int = 0) -> bool:
        """Tell whether an input of a definition feeds a widget inside."""
        return any(self._is_widget(slot, node, depth) for node, slot in inner_targets(graph, index))

    def _is_widget(self, slot: Slot, node: Node, depth: int) -> bool:
        if slot.widget is not None:
            return True
        definition = self._definitions.get(node.type)
        if definition is None or depth >= _MAX_DEPTH:
            return False
        index = next((i for i, port in enumerate(definition.inputs) if port.name == slot.name), None)
        return index is not None and self._has_widget(definition, index, depth + 1)


def inner_targets(graph: Graph, index: int) -> Iterator[tuple[Node, Slot]]:
    """Yield the nodes and inputs inside that an input of a definition feeds."""
    for link in graph.links.values():
        if link.origin == INPUT_NODE and link.origin_slot == index:
            node = graph.nodes.get(link.target)
            if node is not None and link.target_slot < len(node.inputs):
                yield node, node.inputs[link.target_slot]


def _proxies(host: Node) -> list[WidgetKey]:
    """Return the inner widgets that an instance of an older save shows, in order."""
    raw = host.properties.get("proxyWidgets")
    if not isinstance(raw, list):
        return []
    return [(str(each[0]), str(each[1])) for each in raw if isinstance(each, list) and len(each) >= 2]


def _promoted_values(host: Node, names: list[str]) -> dict[str, Any]:
    """Name the values of an instance's own widgets; positions are believed if their count is right."""
    if isinstance(host.values, list) and (len(host.values) == len(names) or not host.named):
        return dict(zip(names, host.values, strict=False))
    saved: Mapping[str, Any] = host.values if isinstance(host.values, dict) else host.named
    return {name: saved[name] for name in names if name in saved}


def _named(graph: Graph, proxies: list[WidgetKey], name: str) -> Iterator[WidgetKey]:
    """Yield what a widget of an instance stands for, by its name there."""
    if any(port.name == name for port in graph.inputs):
        yield "-1", name
    yield from (key for key in proxies if key[1] == name)


def _give(opened: Scope, key: WidgetKey, value: Any) -> None:
    """Give a value to an inner widget, or to the input of the instance (node id -1) that feeds it."""
    node_id, name = key
    if name.startswith(_PREVIEW):
        return
    if node_id == "-1":
        opened.promoted[name] = value
        return
    opened.given[key] = value
    for index, port in enumerate(opened.graph.inputs):
        for node, slot in inner_targets(opened.graph, index):
            if node.id == node_id and (slot.widget or slot.name) == name:
                opened.promoted[port.name] = value


def _primitive_values(graph: Graph) -> dict[WidgetKey, Any]:
    """Return what the primitive nodes of a graph put into the widgets that they are linked to."""
    found: dict[WidgetKey, Any] = {}
    for node in graph.nodes.values():
        if node.type != PRIMITIVE or not isinstance(node.values, list) or not node.values:
            continue
        for link in graph.links.values():
            target = graph.nodes.get(link.target) if link.origin == node.id else None
            slot = None if target is None else next((s for s in target.inputs if s.link == link.id), None)
            if target is not None and slot is not None:
                found[target.id, slot.widget or slot.name] = node.values[0]
    return found
