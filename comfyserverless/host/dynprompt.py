"""Show nodes the graph that is executed, expanded nodes among them (the hidden input DYNPROMPT).

Packs know the class as `comfy_execution.graph.DynamicPrompt`; there must be only this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class NodeNotFoundError(Exception):
    """The graph has no such node."""


class DynamicPrompt:
    """Look at the submitted graph and at what nodes expanded to.

    original: the submitted graph. expanded: nodes that expansions added, by id. parents, displays: of those,
    the node that expanded to them, and the one that shows what they do; reals: the submitted node that they
    belong to.
    """

    def __init__(
        self,
        original: Mapping[str, Any],
        expanded: Mapping[str, Any] | None = None,
        parents: Mapping[str, str] | None = None,
        displays: Mapping[str, str] | None = None,
        reals: Mapping[str, str] | None = None,
    ) -> None:
        self.original_prompt = original
        self.ephemeral_prompt = dict(expanded or {})
        self.ephemeral_parents = dict(parents or {})
        self.ephemeral_display = dict(displays or {})
        self._reals = dict(reals or {})

    def add(self, node_id: str, node: Any, parent: str, display: str, real: str) -> None:
        """Add a node that an expansion has added."""
        self.ephemeral_parents[node_id] = parent
        self.ephemeral_display[node_id] = display
        self._reals[node_id] = real
        self.ephemeral_prompt[node_id] = node

    def get_node(self, node_id: str) -> Any:
        """Return a node in API form. Raises NodeNotFoundError."""
        for nodes in (self.ephemeral_prompt, self.original_prompt):
            if node_id in nodes:
                return nodes[node_id]
        raise NodeNotFoundError(f"Node {node_id} not found")

    def has_node(self, node_id: str) -> bool:
        """Tell whether the graph has a node."""
        return node_id in self.ephemeral_prompt or node_id in self.original_prompt

    def get_original_prompt(self) -> Mapping[str, Any]:
        """Return the submitted graph."""
        return self.original_prompt

    def get_real_node_id(self, node_id: str) -> str:
        """Return the submitted node that a node belongs to."""
        if node_id in self._reals:
            return self._reals[node_id]
        while node_id in self.ephemeral_parents:
            node_id = self.ephemeral_parents[node_id]
        return node_id

    def get_parent_node_id(self, node_id: str) -> str | None:
        """Return the node that expanded to this one, None for a submitted node."""
        return self.ephemeral_parents.get(node_id)

    def get_display_node_id(self, node_id: str) -> str:
        """Return the node that shows what this one does."""
        while node_id in self.ephemeral_display:
            node_id = self.ephemeral_display[node_id]
        return node_id

    def all_node_ids(self) -> set[str]:
        """Return the ids of all nodes."""
        return {*self.original_prompt, *self.ephemeral_prompt}
