"""Mix models and text encoders: a merge is a change of a handle, made when its weights are loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import ClipRef, MergeRef, ModelRef, Value
from comfyserverless.graph.declaration import InputSpec, Lowering, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.specs import number, socket
from comfyserverless.nodes.taking import Inputs, take_clip, take_model

_CATEGORY, _MODULE = "advanced/model_merging", "comfy_extras.nodes_model_merging"
MAX_MERGES = 16
"""How many models one handle mixes: each is read again wherever the handle's weights are loaded."""

_Handle = TypeVar("_Handle", ModelRef, ClipRef)
Shares = tuple[tuple[str, float, float], ...]
"""(How names of weights begin, factor of the first model, of the second); the empty one is for all others."""

SharesOf = Callable[[Inputs], Shares]


def merged(first: _Handle, second: _Handle, shares: Shares) -> _Handle:
    """Return the first handle with the second mixed in. Raises PromptError if that makes too many."""
    # Patches act where a model is evaluated: those of the second would only hide that its weights are known.
    other = msgspec.structs.replace(second, patches=()) if isinstance(second, ModelRef) else second
    changes = (*first.loras, MergeRef(other, shares))
    if sum(_merges(change) for change in changes) > MAX_MERGES:
        raise PromptError(f"More than {MAX_MERGES} models are merged into one")
    return msgspec.structs.replace(first, loras=changes)


def _merges(change: Value) -> int:
    """Count the merges of a change, with those of the model that it mixes in."""
    return 1 + sum(map(_merges, change.other.loras)) if isinstance(change, MergeRef) else 0


def _by_ratio(inputs: Inputs) -> Shares:
    return _split("", inputs["ratio"])


def _difference(inputs: Inputs) -> Shares:
    return (("", inputs["multiplier"], -inputs["multiplier"]),)


def _sum(inputs: Inputs) -> Shares:
    return (("", 1.0, 1.0),)


def _by_block(names: Sequence[str]) -> SharesOf:
    """Return shares by block. names: of the inputs, which are how the weights that they mean begin."""

    def shares(inputs: Inputs) -> Shares:
        others = _split("", inputs[names[0]])
        return (*others, *(share for name in names for share in _split(name, inputs[name])))

    return shares


def _split(begin: str, ratio: float) -> Shares:
    return ((begin, float(ratio), 1.0 - ratio),)


def _models(shares: SharesOf) -> Lowering:
    async def lower(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
        first, second = take_model(inputs, "model1"), take_model(inputs, "model2")
        return NodeResult((merged(first, second, shares(inputs)),))

    return lower


def _clips(shares: SharesOf) -> Lowering:
    async def lower(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
        first, second = take_clip(inputs, "clip1"), take_clip(inputs, "clip2")
        return NodeResult((merged(first, second, shares(inputs)),))

    return lower


def _ratio(name: str) -> InputSpec:
    return number(name, 1.0, 0.0, 1.0, step=0.01)


def _model_node(
    name: str, shares: SharesOf, *inputs: InputSpec, category: str = _CATEGORY, module: str = _MODULE
) -> NodeDeclaration:
    return NodeDeclaration(
        name=name,
        display_name=name,
        category=category,
        python_module=module,
        lower=_models(shares),
        inputs=(socket("model1", "MODEL"), socket("model2", "MODEL"), *inputs),
        outputs=(OutputSpec("MODEL"),),
    )


def _clip_node(name: str, shares: SharesOf, *inputs: InputSpec) -> NodeDeclaration:
    return NodeDeclaration(
        name=name,
        display_name=name,
        category=_CATEGORY,
        python_module=_MODULE,
        lower=_clips(shares),
        inputs=(socket("clip1", "CLIP"), socket("clip2", "CLIP"), *inputs),
        outputs=(OutputSpec("CLIP"),),
    )


def _specific(name: str, blocks: int, end: str) -> NodeDeclaration:
    """Declare the merge of a U-Net with a ratio for each block; end: of the names of blocks."""
    names = [
        "time_embed.",
        "label_emb.",
        *(f"input_blocks.{at}{end}" for at in range(blocks)),
        *(f"middle_block.{at}{end}" for at in range(3)),
        *(f"output_blocks.{at}{end}" for at in range(blocks)),
        "out.",
    ]
    return _model_node(
        name,
        _by_block(names),
        *(_ratio(each) for each in names),
        category=f"{_CATEGORY}/model_specific",
        module=f"{_MODULE}_model_specific",
    )


_MULTIPLIER = number("multiplier", 1.0, -10.0, 10.0, step=0.01)
_PARTS = ("input", "middle", "out")

NODES = (
    _model_node("ModelMergeSimple", _by_ratio, _ratio("ratio")),
    _model_node("ModelMergeBlocks", _by_block(_PARTS), *(_ratio(name) for name in _PARTS)),
    _model_node("ModelMergeSubtract", _difference, _MULTIPLIER),
    _model_node("ModelMergeAdd", _sum),
    _clip_node("CLIPMergeSimple", _by_ratio, _ratio("ratio")),
    _clip_node("CLIPMergeSubtract", _difference, _MULTIPLIER),
    _clip_node("CLIPMergeAdd", _sum),
    _specific("ModelMergeSD1", 12, "."),
    _specific("ModelMergeSD2", 12, "."),
    _specific("ModelMergeSDXL", 9, ""),
)
"""The declarations of this module, in the order of the node menu."""
