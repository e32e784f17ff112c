"""Multiply weights of text encoders: a merge of a model with itself, of which nothing is added."""

from __future__ import annotations

import msgspec

from comfyserverless.graph.declaration import NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.nodes.merging.merging import Shares, merged
from comfyserverless.nodes.specs import number, socket
from comfyserverless.nodes.taking import Inputs, take_clip

_LAYERS = 48
"""More layers than any text encoder has."""

_PARTS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "out": "out_proj"}


async def _multiply(ctx: LoweringContext, inputs: Inputs) -> NodeResult:
    clip = take_clip(inputs)
    shares: Shares = (
        *(
            (f"encoder.layers.{layer}.self_attn.{name}.", float(inputs[part]), 0.0)
            for layer in range(_LAYERS)
            for part, name in _PARTS.items()
            if inputs[part] != 1.0
        ),
        ("", 1.0, 0.0),
    )
    return NodeResult((merged(clip, msgspec.structs.replace(clip, loras=()), shares),))


NODES = (
    NodeDeclaration(
        name="CLIPAttentionMultiply",
        category="_for_testing/attention_experiments",
        python_module="comfy_extras.nodes_attention_multiply",
        experimental=True,
        lower=_multiply,
        inputs=(socket("clip", "CLIP"), *(number(part, 1.0, 0.0, 10.0, step=0.01) for part in _PARTS)),
        outputs=(OutputSpec("CLIP"),),
    ),
)
"""The declarations of this module, in the order of the node menu."""
