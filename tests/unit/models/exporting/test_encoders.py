"""Text models are laid out as the files of their families."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import ClipRef, LoraRef
from comfyserverless.models.exporting.encoders import ExportedClip, checkpoint_clips, own_file
from comfyserverless.models.exporting.writing import write_file as write
from comfyserverless.models.pool import ModelPool
from tests.unit.models.files import mini_clip, mini_open_clip, write_file

HUGGING_FACE, OPEN = "conditioner.embedders.0.transformer.", "conditioner.embedders.1.model."


def exported(tmp_path: Path, tensors: dict[str, torch.Tensor], **ref: object) -> ExportedClip:
    file = write_file(tmp_path / "in.safetensors", tensors)
    (clip,) = ModelPool().clip_entries(ClipRef((file,), **ref))  # type: ignore[arg-type]
    return clip


def test_open_clip_comes_out_as_it_went_in(tmp_path: Path) -> None:
    tensors = mini_open_clip(OPEN, layers=32)
    clip = exported(tmp_path, tensors)
    (tmp_path / "l").mkdir()
    other = exported(tmp_path / "l", mini_clip(HUGGING_FACE))
    write(tmp_path / "out", checkpoint_clips("sdxl", [other, clip]), {})
    saved = load_file(tmp_path / "out")
    positions = f"{HUGGING_FACE}text_model.embeddings.position_ids"
    assert saved.pop(positions).tolist() == [list(range(77))]
    wanted = tensors | mini_clip(HUGGING_FACE)
    assert saved.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(saved[name], tensor), name
        assert saved[name].dtype == tensor.dtype


def test_scale_that_a_file_lacks_is_the_trained_one(tmp_path: Path) -> None:
    tensors = mini_open_clip("cond_stage_model.model.", layers=24)
    del tensors["cond_stage_model.model.logit_scale"]
    made = checkpoint_clips("sd2", [exported(tmp_path, tensors)])
    assert made["cond_stage_model.model.logit_scale"].make().item() == pytest.approx(4.6055)


def test_projection_is_kept_in_a_file_of_its_own_and_left_out_of_checkpoints(tmp_path: Path) -> None:
    clip = exported(tmp_path, mini_clip(projection=True))
    assert own_file(clip).keys() == mini_clip(projection=True).keys()
    made = checkpoint_clips("sd15", [clip])
    assert made.keys() == mini_clip("cond_stage_model.transformer.").keys()


def test_changes_are_part_of_what_is_saved_in_the_type_that_runs(tmp_path: Path) -> None:
    layer = "lora_te_text_model_encoder_layers_0_self_attn_q_proj"
    factors = {
        f"{layer}.lora_up.weight": torch.ones(8, 1),
        f"{layer}.lora_down.weight": torch.ones(1, 8),
    }
    lora = write_file(tmp_path / "lora.safetensors", factors)
    clip = exported(tmp_path, mini_clip(), loras=(LoraRef(lora, 0.5),))
    made, name = own_file(clip), "text_model.encoder.layers.0.self_attn.q_proj.weight"
    assert made[name].dtype == torch.float16
    assert torch.equal(made[name].make(), (mini_clip()[name].float() + 0.5).half())
    other = "text_model.encoder.layers.0.self_attn.k_proj.weight"
    assert torch.equal(made[other].make(), mini_clip()[other])


@pytest.mark.parametrize("family", ["sd2", "sdxl"])
def test_text_models_of_another_family_are_refused(tmp_path: Path, family: str) -> None:
    with pytest.raises(PromptError, match=r"holds CLIP-.*, this text encoder is CLIP-L"):
        checkpoint_clips(family, [exported(tmp_path, mini_clip())])
