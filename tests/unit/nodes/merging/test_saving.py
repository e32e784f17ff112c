"""Nodes that save models: what is written where."""

from __future__ import annotations

import pytest

from tests.support.graph_fakes import FakeContext
from tests.support.graph_lowered import CLIP, MODEL, VAE, lower


@pytest.mark.parametrize(
    ("node", "function", "inputs", "title"),
    [
        ("ModelSave", "model.save", {"model": MODEL}, "x 1"),
        ("CheckpointSave", "checkpoint.save", {"model": MODEL, "clip": CLIP, "vae": VAE}, "x 1"),
        ("VAESave", "vae.save", {"vae": VAE}, None),
    ],
)
async def test_model_is_saved_with_metadata_and_nothing_is_shown(
    node: str, function: str, inputs: dict[str, object], title: str | None
) -> None:
    ctx = FakeContext(results={function: {"files": ["/output/a/.save1_0.part"]}})
    result = await lower(node, ctx, filename_prefix="a/x", **inputs)
    (call,) = ctx.calls
    assert call.function == function
    assert {name: call.inputs[name] for name in inputs} == inputs
    assert call.inputs["directory"] == "/output/a"
    assert set(call.inputs["metadata"]) == {"prompt"}
    assert call.inputs.get("title") == title
    assert result.ui == {}


@pytest.mark.parametrize(("embeds", "texts"), [(True, {"format", "prompt"}), (False, set())])
async def test_each_text_model_is_saved_in_a_file_that_is_named_after_it(embeds: bool, texts: set[str]) -> None:
    results = {"clip.kinds": {"kinds": ["l", "g"]}, "clip.save": {"files": ["/output/a/.part"]}}
    ctx = FakeContext(results=results, embeds_metadata=embeds)
    await lower("CLIPSave", ctx, clip=CLIP, filename_prefix="a/x")
    assert [place.name for place, _, _ in ctx.published] == ["x_clip_l", "x_clip_g"]
    _, *saves = ctx.calls
    assert [call.inputs["kind"] for call in saves] == ["l", "g"]
    assert all(call.inputs["clip"] == CLIP and set(call.inputs["metadata"]) == texts for call in saves)
