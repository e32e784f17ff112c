"""Nodes that save models: what is written where."""

from __future__ import annotations

import pytest

from tests.support.graph_fakes import FakeContext
from tests.support.graph_lowered import MODEL, VAE, lower


@pytest.mark.parametrize(
    ("node", "function", "inputs"),
    [("ModelSave", "model.save", {"model": MODEL}), ("VAESave", "vae.save", {"vae": VAE})],
)
async def test_model_is_saved_with_metadata_and_nothing_is_shown(
    node: str, function: str, inputs: dict[str, object]
) -> None:
    ctx = FakeContext(results={function: {"files": ["/output/a/.save1_0.part"]}})
    result = await lower(node, ctx, filename_prefix="a/x", **inputs)
    (call,) = ctx.calls
    assert call.function == function
    assert {name: call.inputs[name] for name in inputs} == inputs
    assert call.inputs["directory"] == "/output/a"
    assert set(call.inputs["metadata"]) == {"prompt"}
    assert result.ui == {}
