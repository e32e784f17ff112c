"""Declare the classes of packs from what the node host says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from comfyserverless.control.hosting.lowering import CallScopes, PackNode
from comfyserverless.core.hosting import InputInfo, NodeInfo
from comfyserverless.graph.declaration import (
    FileCatalog,
    InputSpec,
    NodeDeclaration,
    OutputSpec,
    RemoteCheck,
    Section,
)

_SECTIONS: Mapping[str, Section] = {"required": "required", "optional": "optional"}


def declaration_of(info: NodeInfo, scopes: CallScopes) -> NodeDeclaration:
    """Return the declaration of a class, or of one node of it: `info` may be for what was submitted to it."""
    node, entry = PackNode(info, scopes), info.info
    validator = info.validator
    return NodeDeclaration(
        name=info.name,
        lower=node.lower,
        inputs=tuple(_input(each) for each in info.inputs),
        outputs=tuple(
            OutputSpec(_kind(each.type), each.name, each.tooltip, each.is_list, each.matches_any)
            for each in info.outputs
        ),
        display_name=str(entry.get("display_name") or info.name),
        category=str(entry.get("category") or ""),
        description=str(entry.get("description") or ""),
        output_node=info.output_node,
        hidden=info.hidden,
        python_module=str(entry.get("python_module") or ""),
        deprecated=bool(entry.get("deprecated")),
        experimental=bool(entry.get("experimental")),
        not_idempotent=info.not_idempotent,
        input_is_list=info.input_is_list,
        is_async=info.is_async,
        lower_calls=node.lower_calls,
        check_lazy=node.check_lazy if info.has_lazy_check else None,
        takes_undeclared_links=True,
        remote_check=None
        if validator is None
        else RemoteCheck(frozenset(validator.names), validator.takes_all, validator.takes_types),
        has_remote_token=info.has_change_token,
        info=entry,
    )


def broken_declaration(info: NodeInfo, scopes: CallScopes, reason: str) -> NodeDeclaration:
    """Declare a node whose class cannot say what it is now: as it was at loading, but it passes no check."""

    def refuse(catalog: FileCatalog, inputs: Mapping[str, Any]) -> Mapping[str, str]:
        raise RuntimeError(reason)

    return replace(declaration_of(info, scopes), inputs=(), check_inputs=refuse, remote_check=None)


def _input(info: InputInfo) -> InputSpec:
    return InputSpec(
        info.name, _kind(info.type), info.options, _SECTIONS.get(info.section, "optional"), info.matches_any
    )


def _kind(kind: str | list[Any]) -> str | tuple[Any, ...]:
    """Return a type name as it is, the choices of a combo as a tuple."""
    return kind if isinstance(kind, str) else tuple(kind)
