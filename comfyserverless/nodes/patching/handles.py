"""Write patches on model handles, and read what they mean for the way a sampler's work is divided."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from comfyserverless.core.values import DIFFERENTIAL_DIFFUSION, PYTHON_PATCH, ModelRef, Patch, Scalar
from comfyserverless.graph.declaration import Lowering
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.taking import Inputs, take_model

_OF_ONE_BRANCH = frozenset(
    {
        DIFFERENTIAL_DIFFUSION,
        "model_sampling_discrete",
        "model_sampling_edm",
        "model_sampling_v",
        "freeu",
        "freeu_v2",
        "downscale",
        "multiply_attention",
    }
)
"""Patches that see one model call at a time, whatever the other branch of guidance gives."""

Arguments = Mapping[str, Scalar]


def with_patch(model: ModelRef, name: str, arguments: Arguments) -> ModelRef:
    """Return the handle with one more patch; what a pack has put in stays the last."""
    own = [patch for patch in model.patches if patch.name != PYTHON_PATCH]
    foreign = [patch for patch in model.patches if patch.name == PYTHON_PATCH]
    patch = Patch(name, tuple(arguments.items()))
    return msgspec.structs.replace(model, patches=(*own, patch, *foreign))


def may_split(model: ModelRef) -> bool:
    """Tell whether the branches of guidance may be evaluated apart: no patch wants to see both."""
    return all(patch.name in _OF_ONE_BRANCH for patch in model.patches)


def patching(name: str, arguments: Callable[[Inputs], Arguments] | str = "") -> Lowering:
    """Return a lowering that puts a patch on the input `model`.

    arguments: makes them from the inputs, or names the inputs that they are.
    """

    async def lower(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
        given = (
            {each: inputs[each] for each in arguments.split()}
            if isinstance(arguments, str)
            else arguments(inputs)
        )
        return NodeResult((with_patch(take_model(inputs), name, given),))

    return lower
