"""Find the classes of nodes that a run meets while it runs, and their change tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from comfyserverless.core.ids import NodeId
from comfyserverless.graph.declaration import Declarations, NodeDeclaration, declared_for
from comfyserverless.graph.questions import Question, Tokens


class NodeClasses(Protocol):
    """What one run asks about nodes; made for each run, so it knows whose they are."""

    async def declare(self, nodes: Mapping[str, Mapping[str, Any]]) -> Mapping[str, NodeDeclaration]:
        """Return the declarations of nodes in API form by id, with the inputs that each has for what it was
        given.

        Nodes whose class does not exist are left out. Raises ComfyServerlessError if nobody can tell.
        """

    async def tokens(self, questions: Sequence[Question]) -> Tokens:
        """Return the change tokens that are asked for; what cannot be had is left out."""


class OwnClasses:
    """Know the classes of this process only: nothing has to be waited for."""

    def __init__(self, declarations: Declarations) -> None:
        self._declarations = declarations

    async def declare(self, nodes: Mapping[str, Mapping[str, Any]]) -> Mapping[str, NodeDeclaration]:
        """Return the declarations of those nodes whose class exists."""
        return declared_by(self._declarations, nodes)

    async def tokens(self, questions: Sequence[Question]) -> Tokens:
        """Return none: no class here has its token elsewhere."""
        return dict[NodeId, Any]()


def declared_by(
    declarations: Declarations, nodes: Mapping[str, Mapping[str, Any]]
) -> dict[str, NodeDeclaration]:
    """Return the declarations of those nodes whose class exists. Raises ValueError as `dynamic_inputs` do."""
    found = {}
    for node_id, node in nodes.items():
        declaration = declarations.get(str(node.get("class_type")))
        if declaration is not None:
            found[node_id] = declared_for(declaration, node.get("inputs") or {})
    return found
