"""Let built-in nodes that take objects of packs run where these are: in the node host, with its own twin of
the class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from comfyserverless.control.hosting.lowering import CallScopes, PackNode
from comfyserverless.core.hosting import NodeInfo, OutputInfo
from comfyserverless.core.values import ObjectRef, Output, Value
from comfyserverless.graph.declaration import NodeDeclaration
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.registry import BUILTIN

TWINS: Mapping[str, tuple[str, ...]] = {
    "SamplerCustom": ("sampler",),
    "SamplerCustomAdvanced": ("noise", "guider", "sampler"),
}
"""Class -> the inputs that may be objects: what built-in nodes give there are dicts."""


def twins_of(nodes: Mapping[str, Any], scopes: CallScopes) -> dict[str, NodeDeclaration]:
    """Return the declarations of those nodes, in API form by id, that may get an object of a pack."""
    found: dict[str, NodeDeclaration] = {}
    for node_id, node in nodes.items():
        name = node.get("class_type") if isinstance(node, Mapping) else None
        declaration = BUILTIN.get(name) if isinstance(name, str) and name in TWINS else None
        if declaration is not None and isinstance(node_id, str):
            found[node_id] = with_twin(declaration, scopes)
    return found


def with_twin(declaration: NodeDeclaration, scopes: CallScopes) -> NodeDeclaration:
    """Return a declaration whose node runs in the node host if it gets an object, and as always if not."""
    names, twin = TWINS[declaration.name], PackNode(_info(declaration), scopes)

    async def lower(context: LoweringContext, inputs: Mapping[str, Value]) -> NodeResult:
        if any(isinstance(inputs.get(name), ObjectRef | Output) for name in names):
            return await twin.lower(context, inputs)
        return await declaration.lower(context, inputs)

    return replace(declaration, lower=lower)


def _info(declaration: NodeDeclaration) -> NodeInfo:
    outputs = tuple(OutputInfo(output.type, output.name) for output in declaration.outputs)
    return NodeInfo(declaration.name, (), outputs, {}, {"python_module": declaration.python_module})
