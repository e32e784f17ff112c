"""Merge nodes: which weights get which shares, and what stays of the first handle."""

from __future__ import annotations

import pytest

from comfyserverless.control.keys import weight_key
from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import ClipRef, FileRef, LoraRef, MergeRef, ModelRef, Patch, decode, encode
from comfyserverless.nodes.merging.merging import MAX_MERGES
from tests.support.graph_fakes import FakeContext
from tests.support.graph_lowered import CLIP, MODEL, output

STYLE = LoraRef(FileRef("/models/loras/style.safetensors"), 0.8)
FIRST = ModelRef(FileRef("/models/a.safetensors"), (STYLE,), (Patch("p"),))
SECOND = ModelRef(FileRef("/models/b.safetensors"), (LoraRef(FileRef("/models/loras/other"), 1.0),))


async def merge_models(name: str, **inputs: float) -> MergeRef:
    ctx = FakeContext()
    model = await output(name, ctx, model1=FIRST, model2=SECOND, **inputs)
    assert (model.file, model.loras[0], model.patches) == (FIRST.file, STYLE, FIRST.patches)
    assert ctx.calls == []
    merge = model.loras[1]
    assert isinstance(merge, MergeRef)
    assert merge.other == SECOND
    return merge


async def test_the_ratio_is_the_share_of_the_first_model() -> None:
    assert (await merge_models("ModelMergeSimple", ratio=0.25)).shares == (("", 0.25, 0.75),)


async def test_differences_and_sums() -> None:
    assert (await merge_models("ModelMergeSubtract", multiplier=2.0)).shares == (("", 2.0, -2.0),)
    assert (await merge_models("ModelMergeAdd")).shares == (("", 1.0, 1.0),)


async def test_parts_of_the_network_have_ratios_of_their_own_and_the_first_is_for_the_rest() -> None:
    merge = await merge_models("ModelMergeBlocks", input=0.25, middle=0.5, out=1.0)
    shares = {
        "input_blocks.3.0.in_layers.0.weight": (0.25, 0.75),
        "middle_block.1.norm.bias": (0.5, 0.5),
        "output_blocks.1.0.skip.weight": (1.0, 0.0),
        "out.2.weight": (1.0, 0.0),
        "time_embed.0.weight": (0.25, 0.75),
    }
    assert {name: merge.share_of(name) for name in shares} == shares


@pytest.mark.parametrize(
    ("name", "end"), [("ModelMergeSD1", "."), ("ModelMergeSD2", "."), ("ModelMergeSDXL", "")]
)
async def test_blocks_have_ratios_of_their_own(name: str, end: str) -> None:
    count = 12 if end else 9
    ratios = {"time_embed.": 0.5, "label_emb.": 0.25, "out.": 0.75}
    ratios |= {f"middle_block.{at}{end}": 1.0 for at in range(3)}
    for side in ("input", "output"):
        ratios |= {f"{side}_blocks.{at}{end}": at / 16 for at in range(count)}
    merge = await merge_models(name, **ratios)
    assert merge.share_of(f"input_blocks.{count - 1}.0.weight")[0] == (count - 1) / 16
    assert merge.share_of("input_blocks.1.0.weight")[0] == 1 / 16
    assert merge.share_of("label_emb.0.0.weight") == (0.25, 0.75)
    assert merge.share_of("anything") == (0.5, 0.5)


@pytest.mark.parametrize(
    ("name", "inputs", "share"),
    [
        ("CLIPMergeSimple", {"ratio": 0.25}, (0.25, 0.75)),
        ("CLIPMergeSubtract", {"multiplier": 2.0}, (2.0, -2.0)),
        ("CLIPMergeAdd", {}, (1.0, 1.0)),
    ],
)
async def test_text_encoders_merge_likewise(
    name: str, inputs: dict[str, float], share: tuple[float, float]
) -> None:
    other = ClipRef((FileRef("/models/b.safetensors"),), last_layer=-2)
    clip = await output(name, clip1=CLIP, clip2=other, **inputs)
    assert clip == ClipRef(CLIP.files, loras=(MergeRef(other, (("", *share),)),), embeddings=CLIP.embeddings)


async def test_merged_handles_travel_and_have_keys_that_name_all_files() -> None:
    model = await output("ModelMergeSimple", model1=FIRST, model2=SECOND, ratio=0.5)
    assert decode(encode([model])) == [model]
    again = await output("ModelMergeSimple", model1=FIRST, model2=SECOND, ratio=0.6)
    assert weight_key(model) != weight_key(again)
    assert weight_key(model).startswith("a.safetensors")
    assert all(name in weight_key(model) for name in ("b.safetensors", "style.safetensors", "other"))


async def test_merges_of_merges_end() -> None:
    model = MODEL
    for _ in range(4):  # 1, 3, 7, 15 merges
        model = await output("ModelMergeAdd", model1=model, model2=model)
    model = await output("ModelMergeAdd", model1=model, model2=MODEL)
    with pytest.raises(PromptError, match=f"More than {MAX_MERGES} models are merged"):
        await output("ModelMergeAdd", model1=model, model2=MODEL)
