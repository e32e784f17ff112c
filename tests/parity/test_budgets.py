"""Every kind of model gives the same bits when its layers come and go as when all of them stay."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from comfyserverless.core.values import ClipRef, ControlNetRef, FileRef, LoraRef, ModelRef, VaeRef
from comfyserverless.models.pool import ModelPool, PoolOptions
from comfyserverless.residency.policy import POLICIES, PolicyName

BUDGET_BYTES = 16 << 20
"""A quarter of the models below, and more than their largest layer (a token embedding)."""
WHOLE_BYTES = 48 << 20
"""For policies that keep whole models: the largest of them with its LoRA."""


def compute(pool: ModelPool, models: Path) -> list[Tensor]:
    """Run a text encoder, a network with and without LoRA and ControlNet, and both halves of an autoencoder."""
    file = FileRef(str(models / "checkpoints" / "sd15_tiny.safetensors"))
    loras = (LoraRef(FileRef(str(models / "loras" / "sd15_style_tiny.safetensors")), 0.8),)
    control = ControlNetRef(FileRef(str(models / "controlnet" / "sd15_canny_tiny.safetensors")))
    x, timesteps = torch.linspace(-1, 1, 256).reshape(1, 4, 8, 8), torch.tensor([300.0])
    context, _ = pool.text(ClipRef((file,), loras=loras)).encode("a photo of a red cat")
    residuals = pool.controlnet(control).residuals(x, timesteps, context, torch.ones(1, 3, 64, 64))
    plain = pool.diffusion(ModelRef(file)).predict(x, timesteps, context)
    patched = pool.diffusion(ModelRef(file, loras)).predict(x, timesteps, context, residuals=residuals)
    vae = pool.vae(VaeRef(file))
    return [context, *residuals, plain, patched, vae.decode(x), vae.encode(torch.ones(1, 32, 32, 3))]


@pytest.mark.parametrize("policy", POLICIES)
def test_layers_that_come_and_go_give_the_same_bits(tiny_models: Path, policy: PolicyName) -> None:
    budget_bytes = BUDGET_BYTES if policy == "layers" else WHOLE_BYTES
    free = ModelPool()
    wanted = compute(free, tiny_models)
    assert free.weights_bytes > 4 * BUDGET_BYTES
    pool = ModelPool(options=PoolOptions(device_bytes=budget_bytes, policy=policy))
    for _ in range(2):
        for got, expected in zip(compute(pool, tiny_models), wanted, strict=True):
            assert torch.equal(got, expected)
        assert pool.weights_bytes <= budget_bytes
