"""Read the nodes that a node's expansion adds to a prompt while it runs.

They are not validated: nothing is converted, and links may lead anywhere. Their classes must exist, and their
ids must be new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from comfyserverless.core.errors import PromptError
from comfyserverless.core.ids import NodeId
from comfyserverless.graph.declaration import NodeDeclaration
from comfyserverless.graph.jsonsafe import brief
from comfyserverless.graph.lowering import Blocked, Lineage, NodeResult
from comfyserverless.graph.plan import Constant, Link, PlanNode
from comfyserverless.graph.semantics.mapping import edge_of
from comfyserverless.graph.semantics.merging import CallResult

Raw = Mapping[str, Mapping[str, Any]]
"""Nodes in API form by id."""


class ExpansionError(PromptError):
    """What a node wants to be replaced by cannot be added to the prompt."""


def joined(
    parent: NodeId, results: Iterable[CallResult], taken: Collection[NodeId]
) -> dict[str, Mapping[str, Any]]:
    """Return the nodes that the calls of a node add, all together.

    taken: the ids that the prompt has. Raises ExpansionError for an id that is taken, and for what is no node.
    """
    nodes: dict[str, Mapping[str, Any]] = {}
    for result in results:
        graph = result.expand if isinstance(result, NodeResult) else None
        for node_id, node in (graph or {}).items():
            if not isinstance(node, Mapping) or not isinstance(node.get("class_type"), str):
                raise ExpansionError(f"Node {parent} adds {brief(node_id)}, which is no node: {brief(node)}")
            if NodeId(node_id) in taken or node_id in nodes:
                raise ExpansionError(f"Node {parent} adds a node {node_id!r}, an id that another one has")
            nodes[node_id] = node
    return nodes


def plan_added(
    parent: NodeId, nodes: Raw, declarations: Mapping[str, NodeDeclaration]
) -> dict[NodeId, PlanNode]:
    """Return the added nodes as nodes of a plan. Raises ExpansionError for a class that does not exist."""
    planned: dict[NodeId, PlanNode] = {}
    for node_id, node in nodes.items():
        declaration = declarations.get(node_id)
        if declaration is None:
            raise ExpansionError(
                f"Node {parent} adds node {node_id!r} of class {node['class_type']!r}, which is not here"
            )
        given = node.get("inputs")
        inputs = {
            name: _as_link(value) or Constant(value)
            for name, value in (given.items() if isinstance(given, Mapping) else ())
        }
        planned[NodeId(node_id)] = PlanNode(NodeId(node_id), declaration, inputs)
    return planned


def descend(lineage: Lineage, parent: NodeId, nodes: Raw) -> None:
    """Note whose expansion has added nodes, and where they are shown (`override_display_id`)."""
    for key, node in nodes.items():
        node_id = NodeId(key)
        override = node.get("override_display_id")
        shown = NodeId(override) if isinstance(override, str) else parent
        lineage.nodes[node_id] = node
        lineage.parents[node_id] = parent
        lineage.displays[node_id] = lineage.display(shown)
        lineage.reals[node_id] = lineage.real(parent)


def links_in(results: Iterable[CallResult]) -> list[Link]:
    """List the links that results stand for, in order."""
    return [
        value
        for result in results
        if isinstance(result, NodeResult)
        for value in result.outputs
        if isinstance(value, Link)
    ]


def resolved(results: Sequence[CallResult], values: Mapping[Link, Sequence[Any] | None]) -> list[CallResult]:
    """Replace links in results by the values at their ends; what was not given there (None) is None."""

    def value(output: Any) -> Any:
        if not isinstance(output, Link):
            return output
        found = values[output]
        return None if found is None else edge_of(found)

    return [
        each if isinstance(each, Blocked) else NodeResult([value(output) for output in each.outputs], each.ui)
        for each in results
    ]


def _as_link(value: Any) -> Link | None:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return None
    source, slot = value
    is_number = isinstance(slot, int | float) and not isinstance(slot, bool)
    return Link(NodeId(source), int(slot)) if isinstance(source, str) and is_number else None
