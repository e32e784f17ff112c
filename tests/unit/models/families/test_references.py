"""Models of the SDXL family compare with diffusers' own configurations, under names that diffusers converts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.loaders.single_file_utils import convert_ldm_unet_checkpoint, convert_open_clip_checkpoint
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from torch import Tensor
from transformers import CLIPTextConfig, CLIPTextModelWithProjection

from comfyserverless.core.values import ClipRef, ModelRef
from comfyserverless.models.pool import ModelPool
from comfyserverless.models.text.bpe import END_ID, START_ID, clip_ids
from tests.support.make_tiny_models import Spec, build, clip_open, unet
from tests.unit.models.files import VOCAB, thinned, write_file

POOLED, CONTEXT = 64, 64
SMALL: dict[str, Any] = {"mc": 32, "nres": 2, "ctx": CONTEXT, "linear": True}
REFINER = SMALL | {"mults": (1, 2, 4, 4), "depths": (0, 2, 2, 0), "mid": 2, "adm": POOLED + 5 * 256}
BASE = SMALL | {"mults": (1, 2, 4), "depths": (0, 2, 4), "mid": 4, "adm": POOLED + 6 * 256}
SSD_DEPTHS = {"middle_block": 0, **{f"output_blocks.{at}": n for at, n in enumerate((4, 4, 3, 2, 1, 1))}}

CONFIG: dict[str, Any] = {
    "layers_per_block": 2,
    "cross_attention_dim": CONTEXT,
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
}
REFINER_CONFIG = CONFIG | {
    "block_out_channels": (32, 64, 128, 128),
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "attention_head_dim": (1, 1, 2, 2),
    "transformer_layers_per_block": 2,
    "projection_class_embeddings_input_dim": REFINER["adm"],
}
SSD_CONFIG = CONFIG | {
    "block_out_channels": (32, 64, 128),
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "mid_block_type": "UNetMidBlock2D",
    "attention_head_dim": (1, 1, 2),
    "transformer_layers_per_block": [1, [2, 2], [4, 4]],
    "reverse_transformer_layers_per_block": [[4, 4, 3], [2, 1, 1], 1],
    "projection_class_embeddings_input_dim": BASE["adm"],
}
TEXT_PREFIX = "conditioner.embedders.0.model."
PREFIX = "model.diffusion_model."


def reference(tensors: dict[str, Tensor], config: dict[str, Any]) -> UNet2DConditionModel:
    model = UNet2DConditionModel(**config).eval()
    names = {**model.config, "class_embed_type": None}
    model.load_state_dict(convert_ldm_unet_checkpoint(dict(tensors), names))
    return model


@pytest.mark.parametrize(
    ("spec", "config", "options", "numbers"),
    [
        (unet(**REFINER), REFINER_CONFIG, {"aesthetic_score": 6.0}, (48.0, 40.0, 0.0, 8.0, 6.0)),
        (unet(**REFINER), REFINER_CONFIG, {"prompt_type": "negative"}, (48.0, 40.0, 0.0, 8.0, 2.5)),
        (thinned(unet(**BASE), SSD_DEPTHS), SSD_CONFIG, {}, (48.0, 40.0, 0.0, 8.0, 48.0, 40.0)),
    ],
    ids=["refiner", "refiner, negative", "ssd_1b"],
)
@torch.no_grad()
def test_a_file_gives_what_diffusers_makes_of_its_own_configuration(
    tmp_path: Path,
    spec: Spec,
    config: dict[str, Any],
    options: dict[str, object],
    numbers: tuple[float, ...],
) -> None:
    tensors = build(Spec().put(PREFIX, spec), "reference", torch.float32)
    diffusion = ModelPool().diffusion(ModelRef(write_file(tmp_path / "model.safetensors", tensors)))
    pooled, context, x = torch.randn(1, POOLED), torch.randn(1, 77, CONTEXT), torch.randn(1, 4, 8, 8)
    adm = diffusion.adm(pooled, 40, 48, {"crop_w": 8, **options})
    given = {"text_embeds": pooled, "time_ids": torch.tensor([numbers])}
    expected = reference(tensors, config)(
        x, torch.tensor([321.0]), context, added_cond_kwargs=given, return_dict=False
    )[0]
    found = diffusion.predict(x, torch.tensor([321.0]), context, adm)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    patched = diffusion.predict(x, torch.tensor([321.0]), context, adm, options={})
    assert torch.equal(patched, found)


@torch.no_grad()
def test_a_refiners_prompt_is_its_only_text_models_last_but_one_layer(tmp_path: Path) -> None:
    sizes = {"d": 64, "ff": 128, "layers": 32}
    tensors = build(Spec().put(TEXT_PREFIX, clip_open(**sizes, vocab=VOCAB)), "reference", torch.float32)
    file = write_file(tmp_path / "refiner.safetensors", tensors)
    cond, pooled = ModelPool().text(ClipRef((file,))).encode("a red bird")
    config = CLIPTextConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=128,
        projection_dim=64,
        num_hidden_layers=32,
        num_attention_heads=1,
        hidden_act="gelu",
        eos_token_id=END_ID,
    )
    model = CLIPTextModelWithProjection(config).eval()
    names = {name for name, _ in model.named_parameters()}
    converted = convert_open_clip_checkpoint(model, dict(tensors), prefix=TEXT_PREFIX)
    flat = {name.removeprefix("text_model."): tensor for name, tensor in converted.items()}
    given = {name: flat[name.removeprefix("text_model.")] for name in names}
    model.load_state_dict(given)
    ids = [START_ID, *clip_ids("a red bird"), END_ID]
    output = model(torch.tensor([ids + [0] * (77 - len(ids))]), output_hidden_states=True)
    torch.testing.assert_close(cond, output.hidden_states[-2], atol=1e-4, rtol=1e-4)
    assert pooled is not None
    torch.testing.assert_close(pooled, output.text_embeds, atol=1e-4, rtol=1e-4)
