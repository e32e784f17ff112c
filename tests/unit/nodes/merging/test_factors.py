"""Multiplied text encoders: only what has a factor is listed, and nothing of the other model is added."""

from __future__ import annotations

from comfyserverless.core.values import ClipRef, FileRef, LoraRef, MergeRef
from tests.support.graph_fakes import FakeContext
from tests.support.graph_lowered import output

STYLE = LoraRef(FileRef("/models/loras/style.safetensors"), 0.8)
CLIP = ClipRef((FileRef("/models/a.safetensors"),), loras=(STYLE,))


async def test_factors_are_those_of_the_attention_s_parts() -> None:
    clip = await output("CLIPAttentionMultiply", FakeContext(), clip=CLIP, q=1.0, k=2.0, v=1.0, out=0.5)
    style, merge = clip.loras
    assert style == STYLE
    assert isinstance(merge, MergeRef)
    assert merge.other == ClipRef(CLIP.files)
    assert merge.share_of("encoder.layers.1.self_attn.k_proj.bias") == (2.0, 0.0)
    assert merge.share_of("encoder.layers.11.self_attn.out_proj.weight") == (0.5, 0.0)
    assert merge.share_of("encoder.layers.1.self_attn.q_proj.weight") == (1.0, 0.0)
    assert merge.share_of("encoder.layers.1.mlp.fc1.weight") == (1.0, 0.0)
