"""Find the classes of nodes, those of packs among them, and ask the node host about them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from comfyserverless.control.execution.classes import declared_by
from comfyserverless.control.hosting.declarations import broken_declaration, declaration_of
from comfyserverless.control.hosting.host import HostDown, PackHost
from comfyserverless.control.hosting.lowering import CallScopes
from comfyserverless.control.hosting.sharing import GRAPH_TAGS
from comfyserverless.control.hosting.twins import Twins
from comfyserverless.core.errors import PromptError
from comfyserverless.core.hosting import NodeInfo
from comfyserverless.core.ids import NodeId
from comfyserverless.core.values import outputs_in
from comfyserverless.graph.declaration import Declarations, FileCatalog, NodeDeclaration
from comfyserverless.graph.plan import Validation
from comfyserverless.graph.questions import Question, Tokens
from comfyserverless.graph.validation import validate
from comfyserverless.nodes.registry import BUILTIN

log = logging.getLogger(__name__)

_CHANGED_WITHIN_S = 120.0

Nodes = Mapping[str, Mapping[str, Any]]


class HostedClasses:
    """Know the built-in classes and those of packs, for one prompt. about: {places} of its tenant; prompt: the
    submitted graph, for tokens that ask for it."""

    def __init__(self, host: PackHost, scopes: CallScopes, about: Mapping[str, Any], prompt: Any) -> None:
        self._host = host
        self._scopes = scopes
        self._about = dict(about)
        self._prompt = prompt

    async def declare(self, nodes: Nodes) -> Mapping[str, NodeDeclaration]:
        """Return the declarations of nodes by id. Raises HostDown if packs cannot be asked."""
        found = declared_by(BUILTIN, nodes)
        twins = Twins.of(self._scopes, self._host.catalog).declare(nodes)
        return {**found, **twins, **await self._declare_hosted(foreign_nodes(nodes))}

    async def tokens(self, questions: Sequence[Question]) -> Tokens:
        """Return the change tokens that are asked for; none if the host cannot tell."""
        nodes = [
            {
                "id": str(each.node),
                "class_type": each.class_type,
                "inputs": {name: None if outputs_in(value) else value for name, value in each.inputs.items()},
            }
            for each in questions
        ]
        try:
            payload = {"nodes": nodes, "about": self._about | self._graph_for(questions)}
            answer = await self._host.ask("changed", payload, _CHANGED_WITHIN_S)
        except (HostDown, PromptError, ValueError) as exc:
            log.warning("node packs cannot say what has changed: %s", exc)
            return {}
        return {NodeId(node): token for node, token in answer.items()}

    def _graph_for(self, questions: Sequence[Question]) -> dict[str, Any]:
        """Return the graph if a class asks for it: it is large, and asked for whenever nodes are added."""
        known = self._host.catalog.classes if self._host.catalog else {}
        infos = [known.get(each.class_type) for each in questions]
        is_wanted = any(info is None or GRAPH_TAGS & set(info.hidden.values()) for info in infos)
        return {"prompt": self._prompt} if is_wanted else {}

    async def validated(self, prompt: Any, files: FileCatalog, targets: Sequence[str] | None) -> Validation:
        """Validate a prompt with nodes of packs in it. Raises HostDown if packs cannot be asked."""
        nodes = foreign_nodes(prompt) if isinstance(prompt, dict) else {}
        overrides = await self._declare_hosted(nodes) if nodes else {}
        if isinstance(prompt, dict):
            overrides |= Twins.of(self._scopes, await self._host.loaded()).declare(prompt)
        known = _Known(self._host)
        validation = validate(prompt, known, files, targets, overrides=overrides)
        if not validation.questions:
            return validation
        payload = [
            {
                "id": str(each.node),
                "class_type": each.class_type,
                "inputs": dict(each.inputs),
                "input_types": {name: _shown_type(kind) for name, kind in each.input_types.items()},
            }
            for each in validation.questions
        ]
        answers = await self._host.ask("check", {"nodes": payload, "about": self._about})
        return validate(prompt, known, files, targets, overrides=overrides, answers=answers)

    async def _declare_hosted(self, nodes: Nodes) -> dict[str, NodeDeclaration]:
        catalog = await self._host.loaded()
        if catalog is None:
            if self._host.is_wanted and nodes:
                why = self._host.health.problem() or "The node packs are not loaded yet"
                raise HostDown(f"{why}. Send this again later")
            return {}
        asked = [
            {"id": node_id, "class_type": node["class_type"], "inputs": given_inputs(node)}
            for node_id, node in nodes.items()
            if isinstance(node.get("class_type"), str)
        ]
        if not asked:
            return {}
        answer = await self._host.ask("describe", {"nodes": asked, "about": self._about})
        declared: dict[str, NodeDeclaration] = {}
        for node_id, info in answer.items():
            known = catalog.classes.get(str(nodes[node_id]["class_type"]))
            if info is not None and "error" not in info:
                declared[node_id] = declaration_of(msgspec.convert(info, NodeInfo), self._scopes)
            elif info is not None and known is not None:
                declared[node_id] = broken_declaration(known, self._scopes, info["error"])
        return declared


class _Known(Declarations):
    """Name all classes; of packs' classes the declaration comes from elsewhere, node by node."""

    def __init__(self, host: PackHost) -> None:
        self._host = host

    def get(self, name: str) -> NodeDeclaration | None:
        """Return a built-in class."""
        return BUILTIN.get(name)

    def names(self) -> Sequence[str]:
        """List all class names."""
        catalog = self._host.catalog
        return (*BUILTIN.names(), *(catalog.classes if catalog else ()))


def foreign_nodes(nodes: Nodes) -> Nodes:
    """Return the nodes whose class is not built in."""
    return {
        node_id: node
        for node_id, node in nodes.items()
        if isinstance(node_id, str)
        and isinstance(node, Mapping)
        and isinstance(node.get("class_type"), str)
        and BUILTIN.get(node["class_type"]) is None
    }


def given_inputs(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a node in API form: the literal, None for a link."""
    inputs = node.get("inputs")
    if not isinstance(inputs, Mapping):
        return {}
    return {
        str(name): None if _is_link(value) or outputs_in(value) else value for name, value in inputs.items()
    }


def _is_link(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)


def _shown_type(kind: Any) -> Any:
    return list(kind) if isinstance(kind, tuple) else str(kind)
