"""CLIP text models in files of both layouts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.reading.weights import open_weights
from comfyserverless.models.resident.layers import Recipe
from comfyserverless.models.text.clip_files import find_clip_models
from tests.support.make_tiny_models import build, clip_hf
from tests.unit.models.files import VOCAB, mini_clip, mini_open_clip, write_file


def read(recipe: Recipe) -> torch.Tensor:
    target = torch.empty(recipe.shape, dtype=recipe.dtype)
    with recipe.weights.reading() as file:
        recipe.read_into(file, target)
    return target


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "cond_stage_model.transformer.",
        "conditioner.embedders.0.transformer.",
        "text_encoders.clip_l.transformer.",
    ],
)
def test_a_hugging_face_model_is_found_below_every_prefix(tmp_path: Path, prefix: str) -> None:
    file = write_file(tmp_path / "a.safetensors", mini_clip(prefix))
    (model,) = find_clip_models(open_weights(file.path))
    assert (model.kind, model.config.width, model.config.layers) == ("l", 8, 2)
    assert "encoder.layers.1.mlp.fc2.bias" in model.recipes()


def test_the_level_text_model_may_be_left_out(tmp_path: Path) -> None:
    tensors = {name.replace("text_model.", ""): tensor for name, tensor in mini_clip().items()}
    plain = find_clip_models(open_weights(write_file(tmp_path / "a.safetensors", tensors).path))[0].recipes()
    named = find_clip_models(open_weights(write_file(tmp_path / "b.safetensors", mini_clip()).path))[
        0
    ].recipes()
    assert plain.keys() == named.keys()


def test_open_clips_fused_attention_is_cut_in_three_and_its_projection_turned(tmp_path: Path) -> None:
    tensors = mini_open_clip("conditioner.embedders.1.model.")
    (model,) = find_clip_models(open_weights(write_file(tmp_path / "a.safetensors", tensors).path))
    loaded = {name: read(recipe) for name, recipe in model.recipes().items()}
    fused = tensors["conditioner.embedders.1.model.transformer.resblocks.1.attn.in_proj_weight"]
    assert torch.equal(loaded["encoder.layers.1.self_attn.k_proj.weight"], fused[8:16])
    assert torch.equal(
        loaded["text_projection.weight"], tensors["conditioner.embedders.1.model.text_projection"].T
    )


@pytest.mark.parametrize(("layers", "kind", "is_quick"), [(12, "l", True), (24, "h", False), (32, "g", False)])
def test_the_number_of_layers_tells_the_kind(tmp_path: Path, layers: int, kind: str, is_quick: bool) -> None:
    file = write_file(tmp_path / "a.safetensors", mini_open_clip(layers=layers))
    (model,) = find_clip_models(open_weights(file.path))
    assert (model.kind, model.config.is_quick_gelu) == (kind, is_quick)


def test_a_file_without_a_text_model_is_refused(tmp_path: Path) -> None:
    weights = open_weights(
        write_file(tmp_path / "vae.safetensors", {"decoder.conv_in.weight": torch.ones(1)}).path
    )
    with pytest.raises(ModelFileError, match=r"vae\.safetensors: holds no CLIP text encoder"):
        find_clip_models(weights)


def test_a_text_model_with_a_hole_is_refused_by_name(tmp_path: Path) -> None:
    tensors = mini_clip()
    del tensors["text_model.encoder.layers.1.mlp.fc1.bias"]
    (model,) = find_clip_models(open_weights(write_file(tmp_path / "a.safetensors", tensors).path))
    with pytest.raises(ModelFileError, match=r"lacks 1 tensors.*encoder\.layers\.1\.mlp\.fc1\.bias"):
        model.recipes()


def test_eight_bit_weights_are_widened(tmp_path: Path) -> None:
    tensors = {name: tensor.to(torch.float8_e4m3fn) for name, tensor in mini_clip().items()}
    (model,) = find_clip_models(open_weights(write_file(tmp_path / "a.safetensors", tensors).path))
    recipes = model.recipes()
    assert {read(recipe).dtype for recipe in recipes.values()} == {torch.float16}
    name = "encoder.layers.0.mlp.fc1.weight"
    assert torch.equal(read(recipes[name]), tensors[f"text_model.{name}"].half())


WIDTH = 8


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("embeddings.token_embedding.weight", (7, 5)),
        ("embeddings.token_embedding.weight", (7, WIDTH)),
        ("embeddings.position_embedding.weight", (76, WIDTH)),
        ("encoder.layers.1.self_attn.q_proj.weight", (WIDTH, 9)),
        ("encoder.layers.0.mlp.fc2.weight", (9, 16)),
        ("encoder.layers.0.layer_norm1.bias", ()),
        ("final_layer_norm.weight", (9,)),
        ("text_projection.weight", (4, 9)),
    ],
)
def test_a_tensor_of_another_shape_is_told_before_it_runs(
    tmp_path: Path, name: str, shape: tuple[int, ...]
) -> None:
    key = name if name.startswith("text_projection") else f"text_model.{name}"
    file = write_file(tmp_path / "a.safetensors", {**mini_clip(), key: torch.zeros(shape)})
    with pytest.raises(ModelFileError, match=rf"a\.safetensors: the text encoder's {name} has"):
        find_clip_models(open_weights(file.path))[0].recipes()


@pytest.mark.parametrize("name", ["encoder.layers.x.y", "encoder.layers.99999999999.foo", "encoder.layers."])
def test_layers_are_counted_up_to_the_first_gap(tmp_path: Path, name: str) -> None:
    file = write_file(tmp_path / "a.safetensors", {**mini_clip(), f"text_model.{name}": torch.zeros(1)})
    (model,) = find_clip_models(open_weights(file.path))
    assert model.config.layers == 2


def test_a_width_that_heads_do_not_divide_is_refused(tmp_path: Path) -> None:
    clip = build(clip_hf(d=200, ff=8, layers=1, vocab=VOCAB, proj=False), "clip", torch.float16)
    (model,) = find_clip_models(open_weights(write_file(tmp_path / "a.safetensors", clip).path))
    with pytest.raises(ModelFileError, match="is 200 wide, no multiple of 64"):
        model.recipes()
