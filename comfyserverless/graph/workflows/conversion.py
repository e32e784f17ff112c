"""Make the prompt that the page would send for a saved workflow.

The answer is what *Run* sends: same ids, inputs, key order and `_meta`. A class that the server does not
declare keeps its name and is told as missing; the page would leave its name out and the prompt be refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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
from comfyserverless.graph.workflows.widgets import kind_and_options
from comfyserverless.graph.workflows.wording import SAVING_CLASSES, Surroundings, picked, with_tokens

ObjectInfo = Mapping[str, Mapping[str, Any]]
"""The answer of `/object_info`: class name -> description."""


_SEARCH_NAME = "Node name for S&R"

_LONGEST_PLAIN = 1e21
"""From here on JavaScript writes numbers with an exponent."""

#: What values of a wrong type or nesting raise, wherever in a file they are.
_DAMAGES = (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)

_MAX_NODES = 100_000

#: Notes of the page about a node -> what is kept of them.
_ORIGIN = {
    "cnr_id": re.compile(r"(.+)", re.DOTALL),
    "aux_id": re.compile(r"([^/\s]+/[^/\s]+)"),
    "ver": re.compile(r"v?(\d+\.\d+\.\d+(?:[-+][\w.+-]*)?|[0-9a-f]{4,40}|unknown)"),
}


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance of a subgraph; inputs: name of one of its widgets -> the (node id, input) it stands for."""

    title: str
    inputs: Mapping[str, Sequence[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Conversion:
    """A prompt, by class name the ids of nodes whose class is not declared, and by id what became subgraphs."""

    prompt: dict[str, Any]
    missing: Mapping[str, list[str]] = field(default_factory=dict)
    instances: Mapping[str, Instance] = field(default_factory=dict)


def convert(document: Any, object_info: ObjectInfo, surroundings: Surroundings | None = None) -> Conversion:
    """Convert a saved workflow (version 0.4 or 1) for a server that declares `object_info`.

    surroundings: for texts with dates and picks; without, dates stay tokens and picks are always the same.
    The document stays as it was. Raises WorkflowError if it is no workflow, or cannot be converted.
    """
    try:
        read_workflow(document)  # says what is wrong before anything is changed
        return _Converter(document, object_info, surroundings or Surroundings()).run()
    except _DAMAGES as exc:
        raise WorkflowError(f"the workflow is damaged ({type(exc).__name__}: {exc})") from exc


class _Converter:
    def __init__(
        self, document: Mapping[str, Any], object_info: ObjectInfo, surroundings: Surroundings
    ) -> None:
        workflow = read_workflow(with_unique_ids(without_group_nodes(document, object_info)))
        self._info = object_info
        self._surroundings = surroundings
        self._workflow = workflow
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
        instances = {":".join(scope.path): self._instance(scope, prompt) for scope in self._scopes.opened()}
        return Conversion(as_object(prompt), self._missing, instances)

    def _instance(self, scope: Scope, prompt: Mapping[str, Any]) -> Instance:
        """Tell which inputs of the prompt the widgets of an instance stand for."""
        found = {
            port.name: targets
            for index, port in enumerate(scope.graph.inputs)
            if (targets := [each for each in self._targets(scope, index) if each[0] in prompt])
        }
        for node_id, name in sorted(scope.shown):
            is_only = [each for _, each in scope.shown].count(name) == 1
            full_id = ":".join((*scope.path, node_id))
            if is_only and name not in found and full_id in prompt:
                found[name] = [(full_id, name)]
        title = (scope.host.title if scope.host is not None else None) or scope.graph.name
        return Instance(title, found)

    def _targets(self, scope: Scope, index: int) -> Iterator[tuple[str, str]]:
        for node, slot in inner_targets(scope.graph, index):
            if not self._scopes.is_instance(node):
                if slot.widget is not None:
                    yield scope.id_of(node), slot.widget
                continue
            inner = self._scopes.inner(scope, node)
            names = [port.name for port in inner.graph.inputs]
            if slot.name in names:
                yield from self._targets(inner, names.index(slot.name))

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
        inputs = self._sent(scope, node)
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

    def _sent(self, scope: Scope, node: Node) -> dict[str, Any]:
        """Return the widget values of a node as they are sent: plainly if an instance shows them as its own."""
        values = self.values(scope, node)
        saved = [slot.name for slot in node.inputs]
        entries = {name: entry for name, entry, _ in all_entries(self._info.get(node.type, {}), values, saved)}
        sent = {}
        for name, value in values.items():
            if (node.id, name) in scope.shown:
                sent[name] = encode(value)
                continue
            kind, options = kind_and_options(entries.get(name))
            if isinstance(value, str):
                value = self._worded(node, name, value, options)
            sent[name] = encode(value, is_curve=kind == "CURVE")
        return sent

    def _worded(self, node: Node, name: str, text: str, options: Mapping[str, Any]) -> str:
        if options.get("dynamicPrompts"):
            text = picked(text, self._surroundings.chance)
        is_file_name = name == "filename_prefix" and node.type in SAVING_CLASSES
        return with_tokens(text, self._value_of, self._surroundings.now) if is_file_name else text

    def _value_of(self, node_name: str, widget: str) -> Any:
        """Return a widget value of the first node of a name (for searching, else its title), wherever it is."""
        graphs = (self._workflow.root, *self._workflow.definitions.values())
        nodes = [node for graph in graphs for node in graph.nodes.values()]
        named = [node for node in nodes if node.properties.get(_SEARCH_NAME) == node_name]
        titled = [node for node in nodes if self._title(node) == node_name]
        node = next(iter((*named, *titled)), None)
        info = None if node is None else self._info.get(node.type)
        if node is None or info is None:
            return None
        return name_values(info, node.type, node.values, node.named).get(widget)

    def _title(self, node: Node) -> str:
        info = self._info.get(node.type) or {}
        return str(node.title or info.get("display_name") or node.type)

    def _meta(self, node: Node) -> dict[str, Any]:
        return {"title": self._title(node)} | _origin(node.properties)


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
