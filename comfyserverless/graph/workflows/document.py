"""Hold a saved workflow as nodes, links and subgraph definitions, whatever version wrote it.

Ids are texts from here on. Nothing is repaired silently except what the page repairs, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from comfyserverless.core.errors import PromptError

INPUT_NODE = "-10"
OUTPUT_NODE = "-20"
"""Ids under which the links of a subgraph name its own inputs and outputs."""

MUTED = 2
BYPASSED = 4
"""Modes of nodes that do not run; all other modes do."""


class WorkflowError(PromptError):
    """A document cannot be read as a workflow, or holds what cannot be converted."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One input or output slot as saved.

    link: id of the link that feeds an input; widget: name of the widget that the input belongs to.
    """

    name: str
    type: str
    link: str | None = None
    widget: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """One link; slots index the saved slots of its ends."""

    id: str
    origin: str
    origin_slot: int
    target: str
    target_slot: int


@dataclass(frozen=True, slots=True)
class Node:
    """One node as saved; values: positional (list), by name (dict) or None; named: values by name."""

    id: str
    type: str
    mode: int
    title: str | None
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    values: list[Any] | dict[str, Any] | None
    named: Mapping[str, Any]
    properties: Mapping[str, Any]

    @property
    def runs(self) -> bool:
        """Tell whether the node is neither muted nor bypassed."""
        return self.mode not in (MUTED, BYPASSED)


@dataclass(frozen=True, slots=True)
class Graph:
    """A workflow or a subgraph definition; inputs and outputs are those of the definition."""

    nodes: Mapping[str, Node]
    links: Mapping[str, Link]
    name: str = ""
    inputs: tuple[Slot, ...] = ()
    outputs: tuple[Slot, ...] = ()
    #: Links by (target, slot), for ends that name no link id: outputs of a definition.
    by_target: Mapping[tuple[str, int], Link] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Workflow:
    """A whole file: the outer graph, and all subgraph definitions by id."""

    root: Graph
    definitions: Mapping[str, Graph]


def read_workflow(document: Any) -> Workflow:
    """Read a saved workflow (version 0.4 or 1). Raises WorkflowError naming what is wrong with it."""
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise WorkflowError("a workflow is an object with the lists `nodes` and `links`")
    definitions = {str(each["id"]): _graph(each) for each in subgraphs_of(document)}
    return Workflow(_graph(document), definitions)


def subgraphs_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the subgraph definitions of a document, also those inside others, outer ones first."""
    holder = document.get("definitions")
    found: list[dict[str, Any]] = []
    listed = holder.get("subgraphs") if isinstance(holder, dict) else None
    for each in listed if isinstance(listed, list) else []:
        if isinstance(each, dict) and "id" in each:
            found += [each, *subgraphs_of(each)]
    return found


def link_fields(link: Any) -> tuple[Any, ...] | None:
    """Return (id, origin, its slot, target, its slot) of a link array or object, None if it is neither."""
    if isinstance(link, list) and len(link) >= 5:
        return tuple(link[:5])
    if isinstance(link, dict) and "id" in link:
        keys = ("id", "origin_id", "origin_slot", "target_id", "target_slot")
        return tuple(link.get(key) for key in keys)
    return None


def _graph(raw: Mapping[str, Any]) -> Graph:
    nodes = {}
    for each in raw.get("nodes") or []:
        if not isinstance(each, dict) or "id" not in each or not isinstance(each.get("type"), str):
            raise WorkflowError(f"a node needs an id and a type: {str(each)[:100]}")
        node = _node(each)
        nodes[node.id] = node
    links = {}
    for each in raw.get("links") or []:
        fields = link_fields(each)
        slots = None if fields is None else (_index(fields[2]), _index(fields[4]))
        if fields is not None and slots is not None and slots[0] is not None and slots[1] is not None:
            links[str(fields[0])] = Link(str(fields[0]), str(fields[1]), slots[0], str(fields[3]), slots[1])
    by_target: dict[tuple[str, int], Link] = {}
    for link in links.values():  # where two links end in one place, the first counts
        by_target.setdefault((link.target, link.target_slot), link)
    nodes = {node.id: replace(node, inputs=_repaired(node, links, by_target)) for node in nodes.values()}
    name = raw.get("name")
    return Graph(
        nodes,
        links,
        name if isinstance(name, str) else "",
        _slots(raw.get("inputs")),
        _slots(raw.get("outputs")),
        by_target,
    )


def _index(slot: Any) -> int | None:
    """Read a slot number; old files have it as a text, too."""
    if isinstance(slot, str) and slot.isdecimal():
        return int(slot)
    return slot if isinstance(slot, int) and not isinstance(slot, bool) else None


def _repaired(
    node: Node, links: Mapping[str, Link], by_target: Mapping[tuple[str, int], Link]
) -> tuple[Slot, ...]:
    """Make inputs and link table agree as the page does: a link belongs to the node that the table names.

    Which of the node's inputs it feeds, the input says; only where none does, the table.
    """
    claimed = {
        slot.link
        for slot in node.inputs
        if slot.link is not None and slot.link in links and links[slot.link].target == node.id
    }
    slots = []
    for index, slot in enumerate(node.inputs):
        link = slot.link if slot.link in claimed else None
        listed = by_target.get((node.id, index))
        if link is None and listed is not None and listed.id not in claimed:
            link = listed.id
        slots.append(slot if slot.link == link else replace(slot, link=link))
    return tuple(slots)


def _node(raw: Mapping[str, Any]) -> Node:
    values, named = raw.get("widgets_values"), raw.get("widgets_values_named")
    properties = raw.get("properties")
    mode, title = raw.get("mode"), raw.get("title")
    return Node(
        str(raw["id"]),
        raw["type"],
        mode if isinstance(mode, int) else 0,
        title if isinstance(title, str) else None,
        _slots(raw.get("inputs")),
        _slots(raw.get("outputs")),
        values if isinstance(values, list | dict) else None,
        named if isinstance(named, dict) else {},
        properties if isinstance(properties, dict) else {},
    )


def _slots(raw: Any) -> tuple[Slot, ...]:
    return tuple(_slot(each) for each in raw if isinstance(each, dict)) if isinstance(raw, list) else ()


def _slot(raw: Mapping[str, Any]) -> Slot:
    link, widget, kind = raw.get("link"), raw.get("widget"), raw.get("type")
    name = widget.get("name") if isinstance(widget, dict) else None
    return Slot(
        str(raw.get("name", "")),
        kind if isinstance(kind, str) else ("COMBO" if isinstance(kind, list) else "*"),
        None if link is None else str(link),
        name if isinstance(name, str) else None,
    )
