"""Read adapters by the keys of a model, and write patches as adapter files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from comfyserverless.core.values import ClipRef, ModelRef
from comfyserverless.host.helpers.files import load_torch_file
from comfyserverless.host.layers.refusing import NotSupportedError
from comfyserverless.host.models import adapters, scratch
from comfyserverless.host.models.origins import FileDict, file_of

UP, DOWN = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0, 4.0]])


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_folders", [tmp_path])


@pytest.fixture(scope="module")
def model(tiny_models: Path) -> ModelRef:
    return ModelRef(scratch.file_ref(tiny_models / "checkpoints" / "sd15_tiny.safetensors"))


def test_unchanged_state_dict_stands_for_its_file(tiny_models: Path) -> None:
    path = tiny_models / "loras" / "sd15_style_tiny.safetensors"
    tensors = load_torch_file(str(path))
    assert isinstance(tensors, FileDict)
    assert file_of(tensors).path == str(path)
    name = next(iter(tensors))
    tensors[name] = tensors[name] * 2
    assert file_of(tensors).path != str(path)
    assert torch.equal(load_file(file_of(tensors).path)[name], tensors[name])


def test_equal_tensors_are_one_file(tmp_path: Path) -> None:
    first, second = file_of({"a": torch.ones(2)}), file_of({"a": torch.ones(2)})
    assert first == second
    assert [path.name for path in tmp_path.iterdir()] == [Path(first.path).name]


def test_layers_of_a_file_are_found_under_the_keys_of_model_and_text(
    model: ModelRef, tiny_models: Path
) -> None:
    keys = adapters.unet_key_map(model.file) | adapters.clip_key_map(ClipRef((model.file,)))
    assert (
        keys["lora_unet_down_blocks_0_attentions_0_proj_in"]
        == "diffusion_model.input_blocks.1.1.proj_in.weight"
    )
    assert (
        keys["lora_te_text_model_encoder_layers_0_self_attn_q_proj"]
        == "clip_l.transformer.text_model.encoder.layers.0.self_attn.q_proj.weight"
    )
    tensors = load_torch_file(str(tiny_models / "loras" / "sd15_style_tiny.safetensors"))
    loaded = adapters.load_lora(tensors, keys)
    assert loaded.is_untouched()
    (change,) = adapters.as_changes(model, loaded, 0.5)
    assert change.file == file_of(tensors)
    del loaded[next(iter(loaded))]
    (change,) = adapters.as_changes(model, loaded, 0.5)
    assert change.file != file_of(tensors)


def test_patches_of_packs_are_written_under_names_that_adapter_files_use(model: ModelRef) -> None:
    patches = {
        "diffusion_model.a.weight": (UP,),
        "diffusion_model.b.bias": ("diff", (UP,)),
        "diffusion_model.c.weight": ("lora", (UP, DOWN, 4.0, None, None)),
    }
    (change,) = adapters.as_changes(model, patches, 1.0)
    assert set(load_file(change.file.path)) == {
        "diffusion_model.a.diff",
        "diffusion_model.b.diff_b",
        "diffusion_model.c.lora_up.weight",
        "diffusion_model.c.lora_down.weight",
        "diffusion_model.c.alpha",
    }
    with pytest.raises(NotSupportedError, match="of kind 'set'"):
        adapters.as_changes(model, {"diffusion_model.a.weight": ("set", (UP,))}, 1.0)


def test_weight_is_calculated_with_its_patches() -> None:
    weight = torch.ones(2, 2)
    patches = [(0.5, ("lora", (UP, DOWN, 2.0, None, None)), 1.0, None, None), (1.0, (weight,), 0.5, None, None)]
    changed = adapters.calculate_weight(patches, weight, "layer.weight")
    assert torch.allclose(changed, (weight + UP @ DOWN) * 0.5 + weight)
