"""Merged models hold the weights that the arithmetic says, and leave and come back like any others."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import ClipRef, LoraRef, MergeRef, ModelRef
from comfyserverless.models.pool import ModelPool
from comfyserverless.models.resident.run import ResidentModel
from tests.support.make_tiny_models import Spec, build
from tests.unit.models.files import mini_clip, mini_unet, write_file

HALF = (("", 0.5, 0.5),)


def numbers_of(pool: ModelPool, models: Sequence[ResidentModel]) -> dict[str, Tensor]:
    """Return the weights that a model runs with, private ones over those of the file."""
    found = {}
    with pool.keeper.running(models) as run:
        for number in range(len(models[0].layers)):
            pool.keeper.enter(run, number)
            for model in models:
                found |= {name: each.clone() for name, each in model.layers[number].parameters.items()}
    return found


def numbers(pool: ModelPool, ref: ClipRef) -> dict[str, Tensor]:
    (part,) = pool.text(ref).parts
    return numbers_of(pool, part.models)


def write_clip(folder: Path, name: str, by: float) -> ClipRef:
    tensors = {key: each + by if each.is_floating_point() else each for key, each in mini_clip().items()}
    return ClipRef((write_file(folder / f"{name}.safetensors", tensors),))


def test_every_weight_of_a_merged_text_encoder_is_the_mean(tmp_path: Path) -> None:
    pool, one, two = ModelPool(), write_clip(tmp_path, "one", 0.0), write_clip(tmp_path, "two", 1.0)
    mixed = numbers(pool, ClipRef(one.files, loras=(MergeRef(two, HALF),)))
    first, second = numbers(pool, one), numbers(pool, two)
    assert len(mixed) == len(first)
    for name, weight in mixed.items():
        expected = (first[name].float() * 0.5 + second[name].float() * 0.5).to(weight.dtype)
        assert torch.equal(weight, expected), name
        assert not torch.equal(weight, first[name])


def test_changes_are_made_in_order_those_of_the_other_model_first(tmp_path: Path) -> None:
    stem = "lora_te_text_model_encoder_layers_0_self_attn_q_proj"
    tensors = {f"{stem}.lora_up.weight": torch.ones(8, 1), f"{stem}.lora_down.weight": torch.ones(1, 8)}
    lora = LoraRef(write_file(tmp_path / "lora.safetensors", tensors), 2.0)
    pool, clip = ModelPool(), write_clip(tmp_path, "one", 0.0)
    other = ClipRef(clip.files, loras=(lora,))
    name = "encoder.layers.0.self_attn.q_proj.weight"
    plain = numbers(pool, clip)[name].float()
    merge = MergeRef(other, (("", 0.75, 0.25),))
    then = numbers(pool, ClipRef(clip.files, loras=(merge, lora)))[name].float()
    torch.testing.assert_close(then, plain + 0.5 + 2.0, atol=2e-3, rtol=0)
    before = numbers(pool, ClipRef(clip.files, loras=(lora, merge)))[name].float()
    torch.testing.assert_close(before, plain + 2.0 * 0.75 + 0.5, atol=2e-3, rtol=0)
    nested = ClipRef(clip.files, loras=(MergeRef(ClipRef(clip.files, loras=(merge,)), HALF),))
    torch.testing.assert_close(numbers(pool, nested)[name].float(), plain + 0.25, atol=2e-3, rtol=0)


def test_a_merged_text_encoder_comes_back_after_all_weights_left(tmp_path: Path) -> None:
    pool, one, two = ModelPool(), write_clip(tmp_path, "one", 0.0), write_clip(tmp_path, "two", 0.5)
    ref = ClipRef(one.files, loras=(MergeRef(two, HALF),))
    before = pool.text(ref).encode("a cat")[0]
    pool.keeper.free_all()
    assert torch.equal(pool.text(ref).encode("a cat")[0], before)
    assert not torch.equal(pool.text(one).encode("a cat")[0], before)


def write_unet(folder: Path, name: str, **changes: object) -> ModelRef:
    spec = Spec().put("model.diffusion_model.", mini_unet(mc=32, **changes))
    return ModelRef(write_file(folder / f"{name}.safetensors", build(spec, name, torch.float16)))


def weights_of(pool: ModelPool, ref: ModelRef) -> dict[str, Tensor]:
    return numbers_of(pool, pool.diffusion(ref).models)


def test_blocks_of_a_network_have_shares_of_their_own(tmp_path: Path) -> None:
    pool, one, two = ModelPool(), write_unet(tmp_path, "one"), write_unet(tmp_path, "two")
    shares = (("", 1.0, 0.0), ("middle_block.", 0.0, 1.0), ("out.", 2.0, -2.0))
    mixed = weights_of(pool, ModelRef(one.file, (MergeRef(two, shares),)))
    first, second = weights_of(pool, one), weights_of(pool, two)
    for name, weight in mixed.items():
        expected = first[name]
        if name.startswith("mid_block."):
            expected = second[name]
        elif name.startswith(("conv_norm_out.", "conv_out.")):
            expected = first[name] * 2 - second[name] * 2
        assert torch.equal(weight, expected), name


def test_weights_of_another_shape_stay_as_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pool, inpainting, plain = ModelPool(), write_unet(tmp_path, "nine", in_ch=9), write_unet(tmp_path, "four")
    with caplog.at_level(logging.WARNING):
        mixed = weights_of(pool, ModelRef(inpainting.file, (MergeRef(plain, (("", 0.0, 1.0),)),)))
    assert "1 weights have no like" in caplog.text
    assert torch.equal(mixed["conv_in.weight"], weights_of(pool, inpainting)["conv_in.weight"])
    assert torch.equal(mixed["conv_out.weight"], weights_of(pool, plain)["conv_out.weight"])


def test_models_of_different_families_cannot_be_merged(tmp_path: Path) -> None:
    one, two = write_unet(tmp_path, "one"), write_unet(tmp_path, "two", linear=True)
    with pytest.raises(PromptError, match="models of the families sd15 and sd2 cannot be merged"):
        ModelPool().diffusion(ModelRef(one.file, (MergeRef(two, HALF),)))
