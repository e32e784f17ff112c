"""The layers of every architecture cover its parameters and come in the order of their compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.controlnets.controlnet import ControlNetModel
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from torch import nn

from comfyserverless.models.resident.order import (
    Order,
    controlnet_order,
    unet_order,
    vae_decoder_order,
    vae_encoder_order,
)

BLOCKS: dict[str, Any] = {
    "block_out_channels": (32, 64),
    "layers_per_block": 1,
    "cross_attention_dim": 8,
    "attention_head_dim": 4,
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
}


def unet(depth: int) -> UNet2DConditionModel:
    up = ("UpBlock2D", "CrossAttnUpBlock2D")
    return UNet2DConditionModel(**BLOCKS, up_block_types=up, transformer_layers_per_block=depth)


def vae() -> AutoencoderKL:
    kinds = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    return AutoencoderKL(block_out_channels=(32, 32), **kinds)  # type: ignore[arg-type]


def hint() -> ControlNetModel:
    return ControlNetModel(**BLOCKS, conditioning_embedding_out_channels=(8, 8))


LATENT, CONTEXT, PIXELS = torch.ones(1, 4, 8, 8), torch.ones(1, 3, 8), torch.ones(1, 3, 16, 16)
CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], Order], Callable[[Any], Any]]] = {
    "unet": (lambda: unet(1), unet_order, lambda m: m(LATENT, 1, CONTEXT)),
    "deep unet": (lambda: unet(3), unet_order, lambda m: m(LATENT, 1, CONTEXT)),
    "controlnet": (
        hint,
        controlnet_order,
        lambda m: m(LATENT, 1, CONTEXT, torch.ones(1, 3, 64, 64)[..., :16, :16]),
    ),
    "vae encoder": (vae, vae_encoder_order, lambda m: m.encode(PIXELS)),
    "vae decoder": (vae, vae_decoder_order, lambda m: m.decode(LATENT)),
}


@pytest.mark.parametrize("name", CASES)
def test_layers_begin_in_order_and_no_module_runs_outside_of_its_layer(name: str) -> None:
    build, order_of, call = CASES[name]
    module: nn.Module = build().eval()
    order = order_of(module)
    owners = {prefix: number for number, prefixes in enumerate(order) for prefix in prefixes}
    now, seen, ran = 0, [0], set[int]()

    def begin(number: int) -> None:
        nonlocal now
        now = number
        seen.append(number)

    def check(path: str) -> None:
        stem = path
        while stem and stem not in owners:
            stem = stem.rpartition(".")[0]
        assert owners.get(stem, 0) == now, f"{path} runs in layer {now}"
        ran.add(now)

    for number, prefixes in enumerate(order):
        if number:
            module.get_submodule(prefixes[0]).register_forward_pre_hook(lambda *_, n=number: begin(n))
    for path, child in module.named_modules():
        if child._parameters:
            child.register_forward_pre_hook(lambda *_, p=path: check(p))
    with torch.no_grad():
        call(module)
    assert seen == list(range(len(order)))
    assert ran == set(seen)
