"""Turn group nodes of old files into subgraphs, as the page does when it loads such a file.

A group node's own values run over the widgets of its inner nodes, its sockets over theirs; what is linked
inside does not show. Modes and hidden widgets of group nodes are forgotten, as the page forgets them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from comfyserverless.graph.workflows.numbering import last_id
from comfyserverless.graph.workflows.values import name_values
from comfyserverless.graph.workflows.virtual import PRIMITIVE, is_virtual
from comfyserverless.graph.workflows.widgets import Widget, entries_of, has_upload, widget_of

_PREFIXES = ("workflow>", "workflow/")
Port = tuple[int, int]
"""Index of an inner node, and a slot of it."""


def without_group_nodes(
    document: Mapping[str, Any], object_info: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a copy of a workflow whose group nodes are instances of subgraphs; others stay as they are."""
    copied = deepcopy(dict(document))
    groups = (copied.get("extra") or {}).get("groupNodes") if isinstance(copied.get("extra"), dict) else None
    if not isinstance(groups, dict):
        return copied
    for node in list(copied["nodes"]):
        name = next((node["type"][len(each) :] for each in _PREFIXES if node["type"].startswith(each)), None)
        raw = groups.get(name) if name is not None else None
        if isinstance(raw, dict) and isinstance(raw.get("nodes"), list):
            _replace(copied, node, _Group(raw, object_info))
    return copied


def _replace(document: dict[str, Any], node: dict[str, Any], group: _Group) -> None:
    """Put an instance of a new subgraph at the end of the nodes, and let the links name it."""
    first = last_id(document) + 1
    kind, new_id = f"group node {node['id']}", first + len(group.nodes)
    _count_up(document, new_id)
    document["nodes"].remove(node)
    ports = list(group.open_inputs())
    saved = node.get("inputs") or []
    links = [each.get("link") for each in saved if isinstance(each, dict)]
    inputs = [
        {"name": str(index), "type": "*", "link": links[index] if index < len(links) else None}
        for index in range(len(ports))
    ]
    document["nodes"].append(
        {"id": new_id, "type": kind, "mode": 0, "inputs": inputs, "outputs": node.get("outputs")}
    )
    document.setdefault("definitions", {}).setdefault("subgraphs", []).append(
        {
            "id": kind,
            "nodes": group.inner_nodes(first, node.get("widgets_values")),
            "links": group.inner_links(first, ports),
            "inputs": [{"name": str(index), "type": "*"} for index in range(len(ports))],
        }
    )
    for link in document.get("links") or []:
        for key, alternative in (("origin_id", 1), ("target_id", 3)):
            place = key if isinstance(link, dict) else alternative
            if str(link[place]) == str(node["id"]):
                link[place] = new_id


def _count_up(document: dict[str, Any], last: int) -> None:
    if isinstance(document.get("state"), dict):
        document["state"]["lastNodeId"] = last
    else:
        document["last_node_id"] = last


class _Group:
    """The definition of a group node."""

    def __init__(self, raw: Mapping[str, Any], object_info: Mapping[str, Mapping[str, Any]]) -> None:
        self._info = object_info
        self.nodes = [node for node in raw["nodes"] if isinstance(node, dict)]
        found = [link for link in raw.get("links") or [] if isinstance(link, list) and len(link) >= 4]
        #: (origin, target) of links inside.
        self._links = [((link[0], link[1]), (link[2], link[3])) for link in found if None not in link[:4:2]]
        self._external = {(each[0], each[1]) for each in raw.get("external") or [] if isinstance(each, list)}

    def open_inputs(self) -> Iterator[Port]:
        """Yield the sockets that show outside: (inner node, index among its sockets)."""
        linked = {(index, name) for _, (index, name) in self._named_links()}
        for index, node in enumerate(self.nodes):
            if node.get("type") == "Reroute":  # shows outside, but leads nowhere
                yield index, 0
            for slot, name in enumerate(self._sockets(node)):
                if (index, name) not in linked:
                    yield index, slot

    def inner_nodes(self, first: int, values: Any) -> list[dict[str, Any]]:
        """Return the inner nodes with ids from `first` on, and with the values of the instance."""
        rest = list(values) if isinstance(values, list) else []
        linked = {(index, name) for _, (index, name) in self._named_links()}
        result = []
        for index, node in enumerate(self.nodes):
            own = self._own_values(node, {name for at, name in linked if at == index}, rest)
            sockets = [{"name": name, "type": kind, "link": None} for name, kind in self._sockets(node).items()]
            result.append({**node, "id": first + index, "inputs": sockets, "widgets_values": own})
        return result

    def inner_links(self, first: int, ports: list[Port]) -> list[dict[str, Any]]:
        """Return the links inside, those from the instance's inputs and those to its outputs."""
        ends = [
            (first + origin, slot, first + index, list(self._sockets(self.nodes[index])).index(name))
            for (origin, slot), (index, name) in self._named_links()
            if name in self._sockets(self.nodes[index])
        ]
        ends += [(-10, at, first + index, slot) for at, (index, slot) in enumerate(ports)]
        ends += [(first + index, slot, -20, at) for at, (index, slot) in enumerate(self._open_outputs())]
        keys = ("id", "origin_id", "origin_slot", "target_id", "target_slot")
        return [dict(zip(keys, (number, *end), strict=True)) for number, end in enumerate(ends)]

    def _open_outputs(self) -> Iterator[Port]:
        used = {origin for origin, _ in self._links} - self._external
        for index, node in enumerate(self.nodes):
            count = len(self._info.get(node.get("type", ""), {}).get("output") or node.get("outputs") or ())
            yield from ((index, slot) for slot in range(count) if (index, slot) not in used)

    def _named_links(self) -> Iterator[tuple[Port, tuple[int, str]]]:
        """Yield the links inside with the name of the input that each feeds."""
        for (origin, slot), (index, at) in self._links:
            if not (isinstance(index, int) and 0 <= index < len(self.nodes)):
                continue
            saved = self.nodes[index].get("inputs") or []
            names = [each.get("name") for each in saved] or list(self._sockets(self.nodes[index]))
            if isinstance(at, int) and 0 <= at < len(names):
                yield (origin, slot), (index, str(names[at]))

    def _sockets(self, node: Mapping[str, Any]) -> dict[str, str]:
        """Return name -> type of a node's inputs that are no widgets."""
        info = self._info.get(str(node.get("type")))
        if info is None:
            return {}
        return {
            name: entry[0] if isinstance(entry[0], str) else "COMBO"
            for name, entry in entries_of(info)
            if entry and widget_of(name, entry) is None
        }

    def _own_values(self, node: Mapping[str, Any], linked: set[str], rest: list[Any]) -> Any:
        """Return the values of an inner node by name; of inputs linked inside, what the group holds."""
        kind = str(node.get("type"))
        info = self._info.get(kind)
        if info is None:
            count = 1 if kind == PRIMITIVE else 0 if is_virtual(kind, is_known=False) else len(_listed(node))
            taken = rest[:count]
            del rest[:count]
            return taken
        kept = name_values(info, kind, node.get("widgets_values"), {})
        found: dict[str, Any] = {}
        for widget in _saved_widgets(info):
            if widget.name in linked:
                found[widget.name] = kept.get(widget.name)
                continue
            if rest:
                found[widget.name] = rest.pop(0)
            del rest[: widget.extra]
        if has_upload(info):
            del rest[:1]
        return found


def _saved_widgets(info: Mapping[str, Any]) -> Iterator[Widget]:
    for name, entry in entries_of(info):
        widget = widget_of(name, entry)
        if widget is not None and widget.is_saved:
            yield widget


def _listed(node: Mapping[str, Any]) -> list[Any]:
    values = node.get("widgets_values")
    return values if isinstance(values, list) else []
