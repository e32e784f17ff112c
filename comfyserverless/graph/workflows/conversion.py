"""Make the prompt that the page would send for a saved workflow.

The answer is what *Run* sends: same ids, inputs, key order and `_meta`. A class that the server does not
declare keeps its name and is told as missing; the page would leave its name out and the prompt be refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from comfyserverless.graph.workflows.document import Node, Slot, WorkflowError, read_workflow
from comfyserverless.graph.workflows.groups import without_group_nodes
from comfyserverless.graph.workflows.numbering import with_unique_ids
from comfyserverless.graph.workflows.ordering import as_object, execution_order
from comfyserverless.graph.workflows.resolving import Given, Origin, Resolver
from comfyserverless.graph.workflows.scopes import Scope, Scopes, inner_targets
from comfyserverless.graph.workflows.slots import all_entries, slots_of
from comfyserverless.graph.workflows.values import name_unknown, name_values
from comfyserverless.graph.workflows.virtual import is_virtual

ObjectInfo = Mapping[str, Mapping[str, Any]]
"""The answer of `/object_info`: class name -> description."""


_LONGEST_PLAIN = 1e21
"""From here on JavaScript writes numbers with an exponent."""

_MAX_NODES = 100_000

#: Notes of the page about a node -> what is kept of them.
_ORIGIN = {
    "cnr_id": re.compile(r"(.+)", re.DOTALL),
    "aux_id": re.compile(r"([^/\s]+/[^/\s]+)"),
    "ver": re.compile(r"v?(\d+\.\d+\.\d+(?:[-+][\w.+-]*)?|[0-9a-f]{4,40}|unknown)"),
}


@dataclass(frozen=True, slots=True)
class Conversion:
    """A prompt, and by class name the ids of nodes whose class is not declared."""

    prompt: dict[str, Any]
    missing: Mapping[str, list[str]] = field(default_factory=dict)


def convert(document: Any, object_info: ObjectInfo) -> Conversion:
    """Convert a saved workflow (version 0.4 or 1) for a server that declares `object_info`.

    The document stays as it was. Raises WorkflowError if it is no workflow, or cannot be converted.
    """
    read_workflow(document)  # says what is wrong before anything is renumbered
    return _Converter(document, object_info).run()


class _Converter:
    def __init__(self, document: Mapping[str, Any], object_info: ObjectInfo) -> None:
        workflow = read_workflow(with_unique_ids(without_group_nodes(document, object_info)))
        self._info = object_info
        self._scopes = Scopes(workflow)
        self._resolver = Resolver(self._scopes, self)
        self._missing: dict[str, list[str]] = {}

    def run(self) -> Conversion:
        """Convert everything."""
        prompt = {}
        for node in execution_order(self._scopes.root.graph):
            for scope, each in self._running(self._scopes.root, node):
                prompt[scope.id_of(each)] = self._entry(scope, each)
                if len(prompt) > _MAX_NODES:
                    raise WorkflowError(f"the subgraphs hold more than {_MAX_NODES} nodes")
        for entry in prompt.values():
            inputs = entry["inputs"]
            for name in [name for name, value in inputs.items() if _dangles(value, prompt)]:
                del inputs[name]
        return Conversion(as_object(prompt), self._missing)

    def _running(self, scope: Scope, node: Node) -> Iterator[tuple[Scope, Node]]:
        """Yield a node, or what is inside it, as far as it runs.

        As in the page, an instance inside another one is opened even if it is muted or bypassed; nothing
        asks for what is inside then, unless it holds output nodes.
        """
        if self._scopes.is_instance(node):
            if node.runs or scope.host is not None:
                inner = self._scopes.inner(scope, node)
                for each in inner.graph.nodes.values():
                    yield from self._running(inner, each)
        elif node.runs and not self.is_virtual(node.type):
            yield scope, node

    def _entry(self, scope: Scope, node: Node) -> dict[str, Any]:
        """Return the entry of a node: values of widgets, then links, then what the page notes about it."""
        if node.type not in self._info:
            self._missing.setdefault(node.type, []).append(scope.id_of(node))
        values = self.values(scope, node)
        curves = self._curves(node, values) - {name for each, name in scope.shown if each == node.id}
        inputs = {name: encode(value, is_curve=name in curves) for name, value in values.items()}
        for slot in self.slots(scope, node):
            source = self._resolver.source(scope, slot)
            if isinstance(source, Origin):
                inputs[slot.name] = [source.node_id, source.slot]
            elif isinstance(source, Given):
                inputs[slot.name] = encode(source.value)
        return {"inputs": inputs, "class_type": node.type, "_meta": self._meta(node)}

    def is_virtual(self, kind: str) -> bool:
        """Tell whether nodes of a type exist in the page only."""
        return is_virtual(kind, is_known=kind in self._info)

    def slots(self, scope: Scope, node: Node) -> tuple[Slot, ...]:
        """Return the inputs that a node has in the page."""
        info = self._info.get(node.type)
        return node.inputs if info is None else slots_of(node, info, self.values(scope, node))

    def values(self, scope: Scope, node: Node) -> dict[str, Any]:
        """Return the widget values of a node, with what is given from outside."""
        info = self._info.get(node.type)
        if info is None:
            widgets = [slot.widget for slot in node.inputs if slot.widget is not None]
            values = name_unknown(node.values, node.named, widgets)
        else:
            values = name_values(info, node.type, node.values, node.named)
        for (node_id, name), value in scope.given.items():
            if node_id == node.id and (name in values or info is None):
                values[name] = value
        return values

    def promoted(self, scope: Scope, index: int) -> Given | None:
        """Return the value of an instance's own widget: as saved with it, else of the first widget inside."""
        name = scope.graph.inputs[index].name
        if name in scope.promoted:
            return Given(scope.promoted[name])
        for node, slot in inner_targets(scope.graph, index):
            if self._scopes.is_instance(node):
                inner = self._scopes.inner(scope, node)
                ports = [port.name for port in inner.graph.inputs]
                found = self.promoted(inner, ports.index(slot.name)) if slot.name in ports else None
                if found is not None:
                    return found
            elif (slot.widget or slot.name) in (values := self.values(scope, node)):
                return Given(values[slot.widget or slot.name])
        return None

    def _curves(self, node: Node, values: Mapping[str, Any]) -> set[str]:
        """Return the names of a node's inputs that are curves."""
        saved = [slot.name for slot in node.inputs]
        entries = all_entries(self._info.get(node.type, {}), values, saved)
        return {name for name, entry, _ in entries if isinstance(entry, list) and entry[:1] == ["CURVE"]}

    def _meta(self, node: Node) -> dict[str, Any]:
        info = self._info.get(node.type) or {}
        meta = {"title": node.title or info.get("display_name") or node.type}
        return meta | _origin(node.properties)


def _origin(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return which pack in which version a node came from, as far as the notes about it can be understood."""
    found = {}
    for key, pattern in _ORIGIN.items():
        text = properties.get(key)
        if isinstance(text, str) and (match := pattern.fullmatch(text)):
            found[key] = match[1]
    return found


def encode(value: Any, *, is_curve: bool = False) -> Any:
    """Wrap a value that would be read as a link, or whose type the server cannot tell."""
    value = _as_page(value)
    if is_curve and value is not None:
        return {"__type__": "CURVE", "__value__": value}
    return {"__value__": value} if isinstance(value, list) else value


def _as_page(value: Any) -> Any:
    """Write whole numbers without a fraction, as the page does."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _LONGEST_PLAIN:
        return int(value)
    if isinstance(value, list):
        return [_as_page(each) for each in value]
    return {key: _as_page(each) for key, each in value.items()} if isinstance(value, dict) else value


def _dangles(value: Any, prompt: Mapping[str, Any]) -> bool:
    """Tell whether an input is a link to a node that is not in the prompt."""
    return isinstance(value, list) and len(value) == 2 and value[0] not in prompt
