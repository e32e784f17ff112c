"""Know the nodes that exist in the page only, and what a prompt gets instead of them."""

from __future__ import annotations

from comfyserverless.graph.workflows.document import Graph, Node

PRIMITIVE = "PrimitiveNode"

_DROPPED = frozenset({PRIMITIVE, "Note", "MarkdownNote"})
_PASSING = frozenset({"Reroute"})

#: Nodes that popular packs add in the page; real ones if a server declares them.
_PACK_DROPPED = frozenset(
    {
        "Label (rgthree)",
        "Bookmark (rgthree)",
        "Fast Muter (rgthree)",
        "Fast Bypasser (rgthree)",
        "Fast Actions Button (rgthree)",
        "Fast Groups Muter (rgthree)",
        "Fast Groups Bypasser (rgthree)",
        "Mute / Bypass Relay (rgthree)",
        "Mute / Bypass Repeater (rgthree)",
        "Node Collector (rgthree)",
        "Random Unmuter (rgthree)",
    }
)
_PACK_PASSING = frozenset({"Reroute (rgthree)"})
_SETTERS = frozenset({"SetNode", "easy setNode"})
_GETTERS = frozenset({"GetNode", "easy getNode"})


def is_virtual(kind: str, *, is_known: bool) -> bool:
    """Tell whether nodes of a type are never part of a prompt; is_known: the server declares the class."""
    if kind in _DROPPED or kind in _PASSING:
        return True
    return not is_known and kind in _PACK_DROPPED | _PACK_PASSING | _SETTERS | _GETTERS


def passed_input(graph: Graph, node: Node, slot: int) -> tuple[Node, int] | None:
    """Return the node and input where a virtual node's output comes from, None if from nowhere."""
    if node.type in _PASSING | _PACK_PASSING:
        return (node, slot) if slot < len(node.inputs) else None
    if node.type in _SETTERS:
        return (node, 0) if node.inputs else None
    if node.type in _GETTERS:
        name = _constant(node)
        setters = (each for each in graph.nodes.values() if each.type in _SETTERS)
        setter = next((each for each in setters if name is not None and _constant(each) == name), None)
        return (setter, 0) if setter is not None and setter.inputs else None
    return None


def _constant(node: Node) -> str | None:
    """Return the name under which a Set or Get node shares its value."""
    values = list(node.values.values()) if isinstance(node.values, dict) else node.values
    return values[0] if values and isinstance(values[0], str) else None
