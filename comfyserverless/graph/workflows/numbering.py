"""Give nodes of subgraphs new ids where an id is used twice in a file, as the page does when it loads one.

Without it the ids of what runs (`12:7`) would differ from those that the page shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from comfyserverless.graph.workflows.document import subgraphs_of


def with_unique_ids(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a workflow in which no two nodes share an id, whichever graph they are in.

    The outer graph keeps its ids, then the definitions in file order; new ids follow the last one used.
    """
    copied = deepcopy(dict(document))
    definitions = subgraphs_of(copied)
    used = {str(node.get("id")) for node in _nodes(copied)}
    last = last_id(copied)
    for definition in definitions:
        changed: dict[str, int] = {}
        for node in _nodes(definition):
            old = str(node.get("id"))
            if old in used:
                last += 1
                while str(last) in used:
                    last += 1
                changed[old] = node["id"] = last
            used.add(str(node.get("id")))
        if changed:
            _follow(definition, changed)
            _follow_proxies([copied, *definitions], definition["id"], changed)
    return copied


def _nodes(graph: Mapping[str, Any]) -> list[dict[str, Any]]:
    nodes = graph.get("nodes")
    return [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []


def last_id(document: Mapping[str, Any]) -> int:
    """Return the largest number that a node of the outer graph has or had."""
    state = document.get("state")
    last = state.get("lastNodeId") if isinstance(state, dict) else document.get("last_node_id")
    own = [node["id"] for node in _nodes(document) if isinstance(node.get("id"), int)]
    return int(max([last if isinstance(last, int) else 0, *own]))


def _follow(definition: dict[str, Any], changed: Mapping[str, int]) -> None:
    """Let the links of a definition name the new ids."""
    for link in definition.get("links") or []:
        if not isinstance(link, dict):
            continue
        for end in ("origin_id", "target_id"):
            link[end] = changed.get(str(link.get(end)), link.get(end))


def _follow_proxies(graphs: Iterable[dict[str, Any]], kind: Any, changed: Mapping[str, int]) -> None:
    """Let the instances of a definition name the new ids of the widgets that they show."""
    for graph in graphs:
        for node in _nodes(graph):
            proxies = (node.get("properties") or {}).get("proxyWidgets") if node.get("type") == kind else None
            for proxy in proxies if isinstance(proxies, list) else []:
                if isinstance(proxy, list) and proxy and str(proxy[0]) in changed:
                    proxy[0] = str(changed[str(proxy[0])])
