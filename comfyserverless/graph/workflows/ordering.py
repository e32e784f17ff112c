"""Put nodes into the order in which the page puts them into a prompt."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from comfyserverless.graph.workflows.document import Graph, Node

_ARRAY_INDEX_LIMIT = 2**32 - 1


def execution_order(graph: Graph) -> list[Node]:
    """Return the nodes so that sources come before their targets; nodes on a cycle come last, in file order."""
    waiting = {node.id: sum(slot.link is not None for slot in node.inputs) for node in graph.nodes.values()}
    ready = deque(node_id for node_id, count in waiting.items() if count == 0)
    outgoing: dict[str, list[str]] = {}
    for link in sorted(graph.links.values(), key=lambda link: link.origin_slot):
        outgoing.setdefault(link.origin, []).append(link.target)
    order = []
    while ready:
        node_id = ready.popleft()
        order.append(node_id)
        for target in outgoing.get(node_id, ()):
            if target not in waiting:
                continue
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    seen = set(order)
    return [graph.nodes[node_id] for node_id in (*order, *(each for each in graph.nodes if each not in seen))]


def as_object(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Order entries as a JavaScript object does: integer keys by value first, then the others as inserted."""
    integers = sorted((key for key in entries if _is_index(key)), key=int)
    return {key: entries[key] for key in (*integers, *(key for key in entries if not _is_index(key)))}


def _is_index(key: str) -> bool:
    if not (key.isascii() and key.isdigit()) or (len(key) > 1 and key[0] == "0"):
        return False
    return len(key) <= 10 and int(key) < _ARRAY_INDEX_LIMIT
