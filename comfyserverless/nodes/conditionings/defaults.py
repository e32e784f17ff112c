"""Add conditionings that act where others leave something of the picture.

Their options hold `default`; where and how strongly the others act is known when a latent is sampled.
"""

from __future__ import annotations

from collections.abc import Sequence

from comfyserverless.core.errors import PromptError
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.conditioning import MAX_ENTRIES
from comfyserverless.nodes.specs import socket
from comfyserverless.nodes.taking import Conditioning, Inputs, take_conditioning

_HOOKS = InputSpec("hooks", "HOOKS", section="optional")


def _with_default(inputs: Inputs, name: str) -> Conditioning:
    """Return a conditioning with that of `NAME_DEFAULT` behind it. Raises PromptError for hooks or too many."""
    if inputs.get("hooks") is not None:
        raise PromptError("hooks of conditionings are not supported by this server")
    own, default = take_conditioning(inputs, name), take_conditioning(inputs, f"{name}_DEFAULT")
    if (count := len(own) + len(default)) > MAX_ENTRIES:
        raise PromptError(f"The combined conditioning has {count} entries, at most {MAX_ENTRIES} are possible")
    return [*own, *([cond, {**options, "default": True}] for cond, options in default)]


def _declare(name: str, title: str, kind: str, sides: Sequence[str]) -> NodeDeclaration:
    async def lower(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
        return NodeResult(tuple(_with_default(inputs, side) for side in sides))

    names = (*sides, *(f"{side}_DEFAULT" for side in sides))
    is_single = len(sides) == 1
    return NodeDeclaration(
        name=name,
        display_name=title,
        category=f"advanced/hooks/cond {kind}",
        python_module="comfy_extras.nodes_hooks",
        experimental=True,
        lower=lower,
        inputs=(*(socket(each, "CONDITIONING") for each in names), _HOOKS),
        outputs=tuple(OutputSpec("CONDITIONING", "" if is_single else side) for side in sides),
    )


NODES = (
    _declare("ConditioningSetDefaultCombine", "Cond Set Default Combine", "single", ("cond",)),
    _declare(
        "PairConditioningSetDefaultCombine", "Cond Pair Set Default Combine", "pair", ("positive", "negative")
    ),
)
"""The declarations of this module, in the order of the node menu."""
