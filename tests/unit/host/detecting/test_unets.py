"""Families of U-Nets, told from names and shapes alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from comfyserverless.host.detecting import unets
from comfyserverless.host.detecting.known import (
    KOALA_1B,
    KOALA_700M,
    SD3,
    SD15,
    SD20,
    SDXL,
    SSD1B,
    Flux,
    FluxSchnell,
    SDXLRefiner,
    Segmind_Vega,
)
from comfyserverless.host.helpers.states import unet_to_diffusers

PREFIX = "model.diffusion_model."


def header(
    channels: int,
    multiples: list[int],
    depths: list[int],
    context: int,
    adm: int | None,
    is_linear: bool,
    blocks: int = 2,
) -> dict[str, Any]:
    """Return the shapes of a U-Net with so many residual blocks a level, as they stand in a file's header."""
    shapes: dict[str, tuple[int, ...]] = {
        "input_blocks.0.0.weight": (channels, 4, 3, 3),
        "out.2.weight": (4, 8),
    }

    def attention(stem: str, depth: int) -> None:
        for number in range(depth):
            shapes[f"{stem}.transformer_blocks.{number}.norm1.weight"] = (8,)
            shapes[f"{stem}.transformer_blocks.{number}.attn2.to_k.weight"] = (8, context)
        if depth:
            shapes[f"{stem}.proj_in.weight"] = (8, 8) if is_linear else (8, 8, 1, 1)

    at = 1
    for level, (multiple, depth) in enumerate(zip(multiples, depths, strict=True)):
        for _ in range(blocks):
            shapes[f"input_blocks.{at}.0.out_layers.3.weight"] = (channels * multiple, 8, 3, 3)
            attention(f"input_blocks.{at}.1", depth)
            at += 1
        if level < len(multiples) - 1:
            shapes[f"input_blocks.{at}.0.op.weight"] = (8, 8, 3, 3)
            at += 1
    attention("middle_block.1", max(depths))
    for number, depth in enumerate(each for last in reversed(depths) for each in [last] * (blocks + 1)):
        shapes[f"output_blocks.{number}.0.out_layers.3.weight"] = (8, 8, 3, 3)
        attention(f"output_blocks.{number}.1", depth)
    if adm is not None:
        shapes["label_emb.0.0.weight"] = (8, adm)
    return {PREFIX + name: SimpleNamespace(shape=shape) for name, shape in shapes.items()} | {
        "__metadata__": {}
    }


KNOWN = {
    SD15: header(320, [1, 2, 4, 4], [1, 1, 1, 0], 768, None, False),
    SD20: header(320, [1, 2, 4, 4], [1, 1, 1, 0], 1024, None, True),
    SDXL: header(320, [1, 2, 4], [0, 2, 10], 2048, 2816, True),
    SDXLRefiner: header(384, [1, 2, 4, 4], [0, 4, 4, 0], 1280, 2560, True),
    SSD1B: header(320, [1, 2, 4], [0, 2, 4], 2048, 2816, True),
    Segmind_Vega: header(320, [1, 2, 4], [0, 1, 2], 2048, 2816, True),
    KOALA_700M: header(320, [1, 2, 4], [0, 2, 5], 2048, 2816, True, blocks=1),
    KOALA_1B: header(320, [1, 2, 4], [0, 2, 6], 2048, 2816, True, blocks=1),
}


@pytest.mark.parametrize("family", KNOWN)
def test_family_is_told_from_the_header_of_a_file(family: type) -> None:
    prefix = unets.unet_prefix_from_state_dict(KNOWN[family])
    assert prefix == PREFIX
    config = unets.detect_unet_config(KNOWN[family], prefix, "F32")
    found = unets.model_config_from_unet_config(config)
    assert type(found) is family
    assert found is not None
    assert found.unet_config["context_dim"] == config["context_dim"]


def test_structure_leads_to_the_names_of_diffusers() -> None:
    config = unets.detect_unet_config(KNOWN[SDXL], PREFIX)
    assert (config["num_res_blocks"], config["channel_mult"]) == ([2, 2, 2], [1, 2, 4])
    assert config["transformer_depth_middle"] == 10
    assert config["transformer_depth_output"] == [0, 0, 0, 2, 2, 2, 10, 10, 10]
    names = unet_to_diffusers(config)
    assert names["up_blocks.0.attentions.2.proj_in.weight"] == "output_blocks.2.1.proj_in.weight"
    assert "up_blocks.2.attentions.0.proj_in.weight" not in names


def shapes(**sizes: tuple[int, ...]) -> dict[str, Any]:
    return {name.replace("__", "."): SimpleNamespace(shape=shape) for name, shape in sizes.items()}


def test_transformers_are_told_apart() -> None:
    sd3 = shapes(
        joint_blocks__0__context_block__attn__qkv__weight=(8, 8), x_embedder__proj__weight=(8, 16, 2, 2)
    )
    assert type(unets.model_config_from_unet(sd3, "")) is SD3
    flux = shapes(
        double_blocks__0__img_attn__norm__key_norm__scale=(8,), single_blocks__0__linear1__weight=(8, 8)
    )
    assert unets.detect_unet_config(flux, "")["depth_single_blocks"] == 1
    assert type(unets.model_config_from_unet(flux, "")) is FluxSchnell
    guided = flux | shapes(guidance_in__in_layer__weight=(8, 8))
    assert type(unets.model_config_from_unet(guided, "")) is Flux


def test_what_we_do_not_know_has_no_family() -> None:
    other = shapes(blocks__0__weight=(8, 8))
    assert unets.detect_unet_config(other, "") is None
    assert unets.model_config_from_unet_config(None) is None
    unknown = unets.detect_unet_config(header(64, [1, 2], [0, 1], 64, None, True), PREFIX)
    assert unets.model_config_from_unet_config(unknown) is None
    unknown_file = header(64, [1, 2], [0, 1], 64, None, True)
    assert unets.model_config_from_unet(unknown_file, PREFIX) is None
    based = unets.model_config_from_unet(unknown_file, PREFIX, True)
    assert based is not None
    assert based.unet_config["context_dim"] == 64
