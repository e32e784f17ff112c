"""Nodes of latent operations: LATENT_OPERATION is {kind, operation, settings}, applied now or inside
guidance."""

from __future__ import annotations

from comfyserverless.core.values import Value
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.custom_sampling.kinds import take
from comfyserverless.nodes.patching.handles import with_patch
from comfyserverless.nodes.specs import number, socket, whole
from comfyserverless.nodes.taking import Inputs, take_latent, take_model

_KIND = "LATENT_OPERATION"


def _operation(name: str, operation: str, *inputs: InputSpec) -> NodeDeclaration:
    async def lower(ctx: LoweringContext, given: Inputs) -> NodeResult:
        settings: Value = {each.name: given[each.name] for each in inputs}
        return NodeResult(({"kind": _KIND, "operation": operation, "settings": settings},))

    return _declare(name, OutputSpec(_KIND), lower, *inputs)


async def _apply(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    latent, operation = take_latent(inputs, "samples"), take(inputs, "operation", _KIND)
    changed = ctx.emit(
        "latent.operate",
        samples=latent["samples"],
        operation=operation["operation"],
        settings=operation["settings"],
    )
    return NodeResult(({**latent, "samples": changed.out("samples")},))


async def _apply_in_guidance(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    operation = take(inputs, "operation", _KIND)
    arguments = {"operation": operation["operation"], **operation["settings"]}
    return NodeResult((with_patch(take_model(inputs), "latent_operation", arguments),))


def _declare(name: str, output: OutputSpec, lower: object, *inputs: InputSpec) -> NodeDeclaration:
    return NodeDeclaration(
        name=name,
        category="latent/advanced/operations",
        python_module="comfy_extras.nodes_latent",
        experimental=True,
        lower=lower,  # type: ignore[arg-type]
        inputs=inputs,
        outputs=(output,),
    )


NODES = (
    _declare(
        "LatentApplyOperation",
        OutputSpec("LATENT"),
        _apply,
        socket("samples", "LATENT"),
        socket("operation", _KIND),
    ),
    _declare(
        "LatentApplyOperationCFG",
        OutputSpec("MODEL"),
        _apply_in_guidance,
        socket("model", "MODEL"),
        socket("operation", _KIND),
    ),
    _operation(
        "LatentOperationTonemapReinhard",
        "tonemap_reinhard",
        number("multiplier", 1.0, 0.0, 100.0, step=0.01),
    ),
    _operation(
        "LatentOperationSharpen",
        "sharpen",
        whole("sharpen_radius", 9, 1, 31, step=1),
        number("sigma", 1.0, 0.1, 10.0, step=0.1),
        number("alpha", 0.1, 0.0, 5.0, step=0.01),
    ),
)
"""The declarations of this module, in the order of the node menu."""
