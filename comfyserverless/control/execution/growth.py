"""Hold the plan of a prompt while it grows: its nodes, their keys, and where added nodes come from."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from comfyserverless.control.views import NodeOrigin
from comfyserverless.core.ids import NodeId
from comfyserverless.graph.declaration import FileCatalog
from comfyserverless.graph.lowering import Lineage
from comfyserverless.graph.plan import Plan, PlanNode
from comfyserverless.graph.questions import Tokens
from comfyserverless.graph.semantics.expansion import Raw, descend
from comfyserverless.graph.signature import Signature, Signing, sign, signatures


class GrowingPlan:
    """Own the nodes of one run; expansions add some, none goes. It is a `graph.frontier.Graph`."""

    def __init__(self, plan: Plan, files: FileCatalog) -> None:
        self.submitted = plan
        self.nodes: dict[NodeId, PlanNode] = dict(plan.nodes)
        self.lineage = Lineage()
        self.signatures: dict[NodeId, Signature | None] = {}
        self._files = files

    @property
    def targets(self) -> tuple[NodeId, ...]:
        """Return the output nodes of the submitted graph that are to run."""
        return self.submitted.targets

    @property
    def prompt(self) -> Mapping[str, Any]:
        """Return the submitted graph, after coercion."""
        return self.submitted.prompt

    def sign(self, tokens: Tokens) -> None:
        """Give the submitted nodes their cache keys."""
        self.signatures = signatures(self.submitted, self._files, tokens)

    def add(self, parent: NodeId, planned: Mapping[NodeId, PlanNode], raw: Raw, tokens: Tokens) -> None:
        """Add what a node expands to. Pre: no id is taken."""
        descend(self.lineage, parent, raw)
        self.nodes.update(planned)
        sign(planned, Signing(self.nodes, raw, self._files, tokens), self.signatures)

    def origin(self, node: NodeId) -> NodeOrigin | None:
        """Return where an added node belongs, None for a submitted one."""
        lineage = self.lineage
        parent = lineage.parent(node)
        return None if parent is None else NodeOrigin(lineage.display(node), parent, lineage.real(node))

    def real(self, node: NodeId) -> PlanNode:
        """Return the submitted node that a node is or descends from."""
        return self.nodes[self.lineage.real(node)]

    def home(self, node: NodeId) -> Hashable | None:
        """Return what added nodes are cached for: id and class of the submitted node, None if it is one."""
        if self.lineage.parent(node) is None:
            return None
        real = self.real(node)
        return real.id, real.declaration.name

    def homes(self) -> set[Hashable]:
        """Return what added nodes of earlier runs may still be cached for."""
        return {(node.id, node.declaration.name) for node in self.submitted.nodes.values()}
