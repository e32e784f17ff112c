"""Find where the value of a linked input comes from, through everything that does not run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from comfyserverless.graph.workflows.document import (
    BYPASSED,
    INPUT_NODE,
    MUTED,
    OUTPUT_NODE,
    Node,
    Slot,
    WorkflowError,
)
from comfyserverless.graph.workflows.scopes import Scope, Scopes
from comfyserverless.graph.workflows.virtual import passed_input

_WILDCARDS = frozenset({"*", "", "0"})
_MAX_STEPS = 200


@dataclass(frozen=True, slots=True)
class Origin:
    """An output of a node that runs."""

    node_id: str
    slot: int


@dataclass(frozen=True, slots=True)
class Given:
    """A constant: the value of a widget of a subgraph's instance."""

    value: Any


Source = Origin | Given


class Classes(Protocol):
    """What links ask about the nodes on their way."""

    def is_virtual(self, kind: str) -> bool:
        """Tell whether nodes of a type exist in the page only."""

    def slots(self, scope: Scope, node: Node) -> Sequence[Slot]:
        """Return the inputs that a node has in the page."""

    def promoted(self, scope: Scope, index: int) -> Given | None:
        """Return the value of the widget that an instance has for an input of its definition, if it has one."""


class Resolver:
    """Resolve links of one workflow."""

    def __init__(self, scopes: Scopes, classes: Classes) -> None:
        self._scopes = scopes
        self._classes = classes

    def source(self, scope: Scope, slot: Slot) -> Source | None:
        """Return what feeds an input, None if nothing does. Raises WorkflowError for a circle of such nodes."""
        return _Walk(self._scopes, self._classes).link(scope, slot.link, slot.type)


class _Walk:
    """One way back from an input, counted so that circles end."""

    def __init__(self, scopes: Scopes, classes: Classes) -> None:
        self._scopes = scopes
        self._classes = classes
        self._steps = 0

    def link(self, scope: Scope, link_id: str | None, wanted: str) -> Source | None:
        """Follow a link of a scope to its origin."""
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise WorkflowError("links of bypassed or virtual nodes go in a circle")
        link = None if link_id is None else scope.graph.links.get(link_id)
        if link is None:
            return None
        if link.origin == INPUT_NODE:
            return self._host_input(scope, link.origin_slot, wanted)
        node = scope.graph.nodes.get(link.origin)
        return None if node is None else self._output(scope, node, link.origin_slot, wanted)

    def _host_input(self, scope: Scope, index: int, wanted: str) -> Source | None:
        """Go on outside, at the input of the instance; without a link there its widget counts."""
        if scope.host is None or scope.parent is None or index >= len(scope.graph.inputs):
            return None
        name = scope.graph.inputs[index].name
        slot = next((slot for slot in scope.host.inputs if slot.name == name), None)
        if slot is None or slot.link is None:
            return self._classes.promoted(scope, index)
        return self.link(scope.parent, slot.link, wanted)

    def _output(self, scope: Scope, node: Node, slot: int, wanted: str) -> Source | None:
        if node.mode == MUTED:
            return None
        if node.mode == BYPASSED:
            chosen = bypassed_input(self._classes.slots(scope, node), node, slot, wanted)
            return None if chosen is None else self.link(scope, chosen.link, chosen.type)
        if self._scopes.is_instance(node):
            return self._instance_output(self._scopes.inner(scope, node), slot, wanted)
        if self._classes.is_virtual(node.type):
            passed = passed_input(scope.graph, node, slot)
            return None if passed is None else self.link(scope, passed[0].inputs[passed[1]].link, wanted)
        return Origin(scope.id_of(node), slot)

    def _instance_output(self, inner: Scope, slot: int, wanted: str) -> Source | None:
        link = inner.graph.by_target.get((OUTPUT_NODE, slot))
        return None if link is None else self.link(inner, link.id, wanted)


def bypassed_input(inputs: Sequence[Slot], node: Node, slot: int, wanted: str) -> Slot | None:
    """Choose the input that a bypassed node's output stands for, given the type that the target takes."""
    if wanted in _WILDCARDS:
        return inputs[slot] if slot < len(inputs) else next(iter(inputs), None)
    offered = node.outputs[slot].type if slot < len(node.outputs) else "*"

    def fits(each: Slot) -> bool:
        return is_compatible(each.type, wanted) and is_compatible(each.type, offered)

    if slot < len(inputs) and fits(inputs[slot]):
        return inputs[slot]
    equal = next((each for each in inputs if each.type == wanted), None)
    return equal or next((each for each in inputs if fits(each)), None)


def is_compatible(one: str, other: str) -> bool:
    """Tell whether the page would link two types: equal without case, a wildcard, or a common alternative."""
    if one in _WILDCARDS or other in _WILDCARDS:
        return True
    alternatives = {each.strip() for each in one.lower().split(",")}
    return not alternatives.isdisjoint(each.strip() for each in other.lower().split(","))
