"""Adapter files merged into parameters, under every name that tools give to layers."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch import Tensor

from comfyserverless.core.values import ClipRef, FileRef, LoraRef
from comfyserverless.models.lora.deltas import LowRank
from comfyserverless.models.lora.keys import UNET_PREFIXES, clip_layer_names, unet_layer_names
from comfyserverless.models.lora.merge import merge as merge_adapters
from comfyserverless.models.lora.merge import plan_loras
from comfyserverless.models.pool import ModelPool
from comfyserverless.models.unet_layout import read_layout, unet_names
from tests.unit.models.files import mini_clip, mini_unet, shapes_of, write_file

UNET = shapes_of(mini_unet())
NAMES = unet_layer_names(unet_names(read_layout(UNET), UNET))
TARGET = "down_blocks.0.attentions.1.transformer_blocks.0.attn1.to_out.0"
ORIGINAL = "input_blocks.2.1.transformer_blocks.0.attn1.to_out.0"
KOHYA = "lora_unet_down_blocks_0_attentions_1_transformer_blocks_0_attn1_to_out_0"


def lora_file(path: Path, name: str, up: str = ".lora_up.weight", down: str = ".lora_down.weight") -> FileRef:
    return write_file(path, {name + up: torch.ones(8, 1), name + down: torch.ones(1, 8)})


def merge(file: FileRef, *strengths: float, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    parameters = {f"{TARGET}.weight": torch.zeros(8, 8, dtype=dtype), "other.weight": torch.zeros(8, 8)}
    planned = plan_loras(tuple(LoraRef(file, s) for s in strengths), parameters, NAMES, UNET_PREFIXES)
    return {name: merge_adapters(parameters[name], adapters) for name, adapters in planned.items()}


@pytest.mark.parametrize(
    ("name", "up", "down"),
    [
        (KOHYA, ".lora_up.weight", ".lora_down.weight"),
        ("lora_unet_" + ORIGINAL.replace(".", "_"), ".lora_up.weight", ".lora_down.weight"),
        ("lycoris_" + TARGET.replace(".", "_"), ".lora_up.weight", ".lora_down.weight"),
        ("diffusion_model." + ORIGINAL, ".lora_B.weight", ".lora_A.weight"),
        ("unet." + TARGET, ".lora_B.weight", ".lora_A.weight"),
        ("unet." + TARGET, ".lora.up.weight", ".lora.down.weight"),
        ("unet." + TARGET.replace(".to_out.0", ".processor.to_out"), "_lora.up.weight", "_lora.down.weight"),
    ],
)
def test_a_layer_is_found_under(tmp_path: Path, name: str, up: str, down: str) -> None:
    changed = merge(lora_file(tmp_path / "a.safetensors", name, up, down), 0.5)
    assert {key: tensor.mean().item() for key, tensor in changed.items()} == {f"{TARGET}.weight": 0.5}


def test_files_are_merged_in_order_and_add_up(tmp_path: Path) -> None:
    file = lora_file(tmp_path / "a.safetensors", KOHYA)
    assert merge(file, 0.5, 0.25, -0.25)[f"{TARGET}.weight"].mean().item() == 0.5


def test_half_precision_weights_are_rounded_once_at_the_end(tmp_path: Path) -> None:
    file = lora_file(tmp_path / "a.safetensors", KOHYA)
    tiny = 2.0**-12
    changed = merge(file, 1.0, *(tiny,) * 4, dtype=torch.float16)[f"{TARGET}.weight"]
    assert changed.dtype is torch.float16
    assert changed[0, 0].item() == 1.0 + 4 * tiny


def test_unknown_names_are_logged_and_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = lora_file(tmp_path / "odd.safetensors", "lora_unet_no_such_layer")
    with caplog.at_level(logging.WARNING):
        assert merge(file, 1.0) == {}
    assert "odd.safetensors: 1 names are not known and are skipped: lora_unet_no_such_layer" in caplog.text


def test_names_of_the_text_encoder_are_no_concern_of_the_unet(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = lora_file(tmp_path / "a.safetensors", "lora_te_text_model_encoder_layers_0_mlp_fc1")
    with caplog.at_level(logging.WARNING):
        assert merge(file, 1.0) == {}
    assert caplog.text == ""


def test_a_layer_of_another_shape_is_logged_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tensors = {KOHYA + ".lora_up.weight": torch.ones(5, 1), KOHYA + ".lora_down.weight": torch.ones(1, 8)}
    with caplog.at_level(logging.WARNING):
        changed = merge(write_file(tmp_path / "a.safetensors", tensors), 1.0)
    assert changed[f"{TARGET}.weight"].abs().max().item() == 0.0
    assert "does not fit this model" in caplog.text


@pytest.mark.parametrize(
    ("kind", "is_pair", "name"),
    [
        ("l", False, "lora_te_text_model_encoder_layers_0_mlp_fc1"),
        ("l", True, "lora_te1_text_model_encoder_layers_0_mlp_fc1"),
        ("g", True, "lora_te2_text_model_encoder_layers_0_mlp_fc1"),
        ("g", False, "lora_te_text_model_encoder_layers_0_mlp_fc1"),
        ("g", True, "text_encoder_2.text_model.encoder.layers.0.mlp.fc1"),
        ("l", True, "text_encoder.text_model.encoder.layers.0.mlp.fc1"),
    ],
)
def test_a_text_layer_is_found_under(kind: str, is_pair: bool, name: str) -> None:
    names = clip_layer_names(kind, is_pair, ["encoder.layers.0.mlp.fc1.weight"])
    assert names[name] == "encoder.layers.0.mlp.fc1"


def test_the_second_text_model_does_not_answer_to_the_firsts_names() -> None:
    names = clip_layer_names("g", True, ["encoder.layers.0.mlp.fc1.weight"])
    assert not [name for name in names if name.startswith(("lora_te1_", "lora_te_", "text_encoder."))]


def test_a_lora_changes_the_prompt_and_costs_only_its_layers(tmp_path: Path) -> None:
    clip = write_file(tmp_path / "clip.safetensors", mini_clip())
    name = "lora_te_text_model_encoder_layers_0_self_attn_v_proj"
    file = lora_file(tmp_path / "lora.safetensors", name)
    pool = ModelPool()
    plain, _ = pool.text(ClipRef((clip,))).encode("a cat")
    base_bytes = pool.weights_bytes
    with_lora = ClipRef((clip,), loras=(LoraRef(file, 0.7),))
    changed, _ = pool.text(with_lora).encode("a cat")
    assert not torch.allclose(plain, changed, atol=1e-3)
    assert pool.weights_bytes - base_bytes == 8 * 8 * 2
    base, patched = pool.text(ClipRef((clip,))).parts[0].weights, pool.text(with_lora).parts[0].weights
    differing = [key for key in base if base[key] is not patched[key]]
    assert differing == ["encoder.layers.0.self_attn.v_proj.weight"]
    zero, _ = pool.text(ClipRef((clip,), loras=(LoraRef(file, 0.0),))).encode("a cat")
    assert torch.equal(zero, plain)


@pytest.mark.parametrize(
    "factors",
    [
        {"lora_up.weight": (8, 0), "lora_down.weight": (0, 8), "alpha": ()},
        {"lora_up.weight": (), "lora_down.weight": ()},
        {"lora_up.weight": (8, 1), "lora_down.weight": (1, 8), "alpha": (3,)},
        {"lora_up.weight": (8, 1), "lora_down.weight": (1, 8), "dora_scale": ()},
        {"lora_up.weight": (90_000, 1), "lora_down.weight": (1, 90_000)},
        {f"hada_w{n}_{side}": (90_000, 1) if side == "a" else (1, 90_000) for n in "12" for side in "ab"},
        {"lokr_w1": (900, 900), "lokr_w2": (900, 900)},
        {"diff": (3,)},
        {"oft_blocks": (3, 3, 3)},
        {"oft_blocks": (2, 3)},
        {"oft_blocks": (4, 2, 4, 4)},
        {f"{part}.weight": (3, 3) for part in ("a1", "a2", "b1", "b2")},
    ],
    ids=[
        "rank 0",
        "scalars",
        "alphas",
        "dora scalar",
        "huge",
        "huge hadamard",
        "huge kronecker",
        "difference",
        "oft of other blocks",
        "flat oft",
        "boft of too many stages",
        "glora",
    ],
)
def test_an_adapter_that_does_not_fit_its_layer_is_skipped_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, factors: dict[str, tuple[int, ...]]
) -> None:
    tensors = {f"{KOHYA}.{name}": torch.ones(shape) for name, shape in factors.items()}
    with caplog.at_level(logging.WARNING):
        changed = merge(write_file(tmp_path / "odd.safetensors", tensors), 1.0)
    assert changed[f"{TARGET}.weight"].count_nonzero() == 0
    assert "odd.safetensors" in caplog.text
    assert "does not fit this model and is skipped" in caplog.text


def test_lack_of_memory_is_not_taken_for_an_adapter_that_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Tensor:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(LowRank, "change", full)
    with pytest.raises(torch.OutOfMemoryError):
        merge(lora_file(tmp_path / "a.safetensors", KOHYA), 1.0)


@pytest.mark.parametrize(("kind", "is_pair"), [("l", False), ("l", True), ("g", True), ("h", False)])
def test_text_models_have_names_that_say_their_kind(kind: str, is_pair: bool) -> None:
    names = clip_layer_names(kind, is_pair, ["text_projection.weight", "encoder.layers.0.mlp.fc1.weight"])
    stem = f"text_encoders.clip_{kind}.transformer."
    assert names[f"{stem}text_model.encoder.layers.0.mlp.fc1"] == "encoder.layers.0.mlp.fc1"
    assert names[f"{stem}text_projection"] == "text_projection"
