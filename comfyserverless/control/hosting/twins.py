"""Let built-in nodes run in the node host, with its own twin of their class, where they take what packs bring.

That is an object (their own noise, guider or sampler), or a sampler or scheduler by a name that a pack has
added to those that nodes list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from comfyserverless.control.hosting.lowering import CallScopes, PackNode
from comfyserverless.core.hosting import Catalog, NodeInfo, OutputInfo
from comfyserverless.core.samplers import SAMPLER_NAMES, SCHEDULER_NAMES
from comfyserverless.core.values import ObjectRef, Output, Value
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.registry import BUILTIN

TWINS: Mapping[str, tuple[str, ...]] = {
    "SamplerCustom": ("sampler",),
    "SamplerCustomAdvanced": ("noise", "guider", "sampler"),
    "KSampler": (),
    "KSamplerAdvanced": (),
    "KSamplerSelect": (),
    "BasicScheduler": (),
}
"""Class -> the inputs that may be objects: what built-in nodes give there are dicts."""

_Added = Mapping[str, tuple[str, ...]]
_KNOWN: _Added = {"sampler_name": SAMPLER_NAMES, "scheduler": SCHEDULER_NAMES}
_NOTHING: _Added = {"sampler_name": (), "scheduler": ()}


@dataclass(frozen=True, slots=True)
class Twins:
    """The twins of one server. scopes: told what runs; added: input -> names that packs have added."""

    scopes: CallScopes
    added: _Added

    @classmethod
    def of(cls, scopes: CallScopes, catalog: Catalog | None) -> Twins:
        """Return the twins for what packs bring."""
        if catalog is None:
            return cls(scopes, _NOTHING)
        return cls(scopes, {"sampler_name": catalog.samplers, "scheduler": catalog.schedulers})

    def declare(self, nodes: Mapping[str, Any]) -> dict[str, NodeDeclaration]:
        """Return the declarations of those nodes, in API form by id, that have a twin."""
        found: dict[str, NodeDeclaration] = {}
        for node_id, node in nodes.items():
            name = node.get("class_type") if isinstance(node, Mapping) else None
            declaration = BUILTIN.get(name) if isinstance(name, str) and name in TWINS else None
            if declaration is not None and isinstance(node_id, str):
                found[node_id] = self.twin(declaration)
        return found

    def described(self) -> list[NodeDeclaration]:
        """Return the declarations whose choices packs have added to."""
        return [
            self.twin(declaration)
            for name in TWINS
            if (declaration := BUILTIN.get(name)) is not None
            and any(self.added.get(spec.name) for spec in declaration.inputs)
        ]

    def twin(self, declaration: NodeDeclaration) -> NodeDeclaration:
        """Return a declaration whose node runs in the node host if it takes what packs bring."""
        names, there = TWINS[declaration.name], PackNode(_info(declaration), self.scopes)

        async def lower(context: LoweringContext, inputs: Mapping[str, Value]) -> NodeResult:
            has_object = any(isinstance(inputs.get(name), ObjectRef | Output) for name in names)
            if has_object or self._is_named(inputs):
                return await there.lower(context, inputs)
            return await declaration.lower(context, inputs)

        inputs = tuple(self._with_added(spec) for spec in declaration.inputs)
        return replace(declaration, lower=lower, inputs=inputs)

    def _is_named(self, inputs: Mapping[str, Any]) -> bool:
        return any(
            isinstance(given := inputs.get(name), str) and given in names for name, names in self.added.items()
        )

    def _with_added(self, spec: InputSpec) -> InputSpec:
        more = self.added.get(spec.name, ())
        return replace(spec, type=(*spec.type, *more)) if more and isinstance(spec.type, tuple) else spec


def names_foreign(prompt: Mapping[str, Any]) -> bool:
    """Tell whether a built-in node of a prompt names a sampler or scheduler that can only be a pack's."""
    return any(
        isinstance(node, Mapping)
        and node.get("class_type") in TWINS
        and isinstance(node.get("inputs"), Mapping)
        and any(_is_foreign(node["inputs"].get(name), known) for name, known in _KNOWN.items())
        for node in prompt.values()
    )


def _is_foreign(given: Any, known: tuple[str, ...]) -> bool:
    return isinstance(given, str) and given not in known


def _info(declaration: NodeDeclaration) -> NodeInfo:
    def output(spec: OutputSpec) -> OutputInfo:
        return OutputInfo(spec.type if isinstance(spec.type, str) else list(spec.type), spec.name)

    outputs = tuple(output(spec) for spec in declaration.outputs)
    return NodeInfo(declaration.name, (), outputs, {}, {"python_module": declaration.python_module})
