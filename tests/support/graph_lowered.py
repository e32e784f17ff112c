"""Lower a built-in node in tests."""

from __future__ import annotations

from typing import Any

from comfyserverless.core.values import ClipRef, FileRef, ModelRef, VaeRef
from comfyserverless.graph.lowering import NodeResult
from comfyserverless.nodes.registry import BUILTIN
from tests.support.graph_fakes import FakeContext

CHECKPOINT = FileRef("/models/checkpoints/sd15_tiny.safetensors")
MODEL = ModelRef(CHECKPOINT)
CLIP = ClipRef((CHECKPOINT,), embeddings=("/models/embeddings",))
VAE = VaeRef(CHECKPOINT)


async def lower(name: str, ctx: FakeContext | None = None, **inputs: Any) -> NodeResult:
    """Lower a node with input values and check that it gives one value per declared output."""
    declaration = BUILTIN.get(name)
    assert declaration is not None
    result = await declaration.lower(ctx or FakeContext(), inputs)
    assert len(result.outputs) == len(declaration.outputs)
    assert (result.ui is not None) == declaration.output_node
    return result


async def output(name: str, ctx: FakeContext | None = None, **inputs: Any) -> Any:
    """Lower a node and return its only output."""
    (value,) = (await lower(name, ctx, **inputs)).outputs
    return value
