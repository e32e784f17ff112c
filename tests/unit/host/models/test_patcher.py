"""Be a MODEL to packs, and a handle to everybody else."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from comfyserverless.core.values import PYTHON_PATCH, LoraRef, ModelRef, Patch
from comfyserverless.host.layers.refusing import NotSupportedError
from comfyserverless.host.models import scratch
from comfyserverless.host.models.extension import PatcherInjection
from comfyserverless.host.models.network import MODELS
from comfyserverless.host.models.patcher import ModelPatcher


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    before = list(scratch._folders)
    scratch.install(tmp_path)
    yield tmp_path
    scratch._folders[:] = before


@pytest.fixture(scope="module")
def ref(tiny_models: Path) -> ModelRef:
    return ModelRef(scratch.file_ref(tiny_models / "checkpoints" / "sd15_tiny.safetensors"))


def doubled(args: dict[str, Any]) -> Any:
    """Stand for a function of a pack."""
    return args["denoised"] * 2


def test_untouched_model_is_its_handle_again(ref: ModelRef, folder: Path) -> None:
    lora = LoraRef(ref.file, 0.5)
    given = ModelRef(ref.file, (lora,), (Patch("rescale_cfg", (("multiplier", 0.5),)),))
    assert ModelPatcher.of(given).clone().to_ref() == given
    assert list(folder.iterdir()) == []


def test_function_goes_into_a_file_and_comes_back_from_it(ref: ModelRef, folder: Path) -> None:
    model = ModelPatcher.of(ref).clone()
    model.set_model_sampler_post_cfg_function(doubled)
    made = model.to_ref()
    assert made is not None
    assert made.patches[-1].name == PYTHON_PATCH
    back = ModelPatcher.of(made)
    assert back.model_options["sampler_post_cfg_function"][0]({"denoised": 4}) == 8
    assert back.to_ref() == made
    assert back.clone().to_ref() == made
    assert len(list(folder.iterdir())) == 1
    assert ModelPatcher.of(ref).model_options == {"transformer_options": {}}


def test_clone_changes_alone_and_shares_the_model(ref: ModelRef) -> None:
    first = ModelPatcher.of(ref)
    second = first.clone()
    second.add_object_patch("model_sampling", "mine")
    second.set_attachments("key", [1])
    second.add_wrapper_with_key("apply_model", "key", doubled)
    assert first.get_model_object("model_sampling") is not second.get_model_object("model_sampling")
    assert second.clone().get_attachment("key") == [1]
    assert first.get_attachment("key") is None
    assert second.is_clone(first)
    assert first.model is ModelPatcher.of(ref).model


def test_model_says_what_its_file_says(ref: ModelRef) -> None:
    model = ModelPatcher.of(ref)
    assert type(model.model) is MODELS["BaseModel"]
    assert model.get_model_object("latent_format").scale_factor == 0.18215
    assert model.get_model_object("model_config").unet_config["in_channels"] == 4
    assert model.model_dtype() is torch.float32
    assert model.model_size() == ref.file.size_bytes
    assert model.memory_required([1, 4, 8, 8]) > 0
    with pytest.raises(AttributeError, match=r"diffusion_model\.input_blocks"):
        _ = model.model.diffusion_model.input_blocks


def test_weights_can_be_read_by_the_beginning_of_their_names(ref: ModelRef) -> None:
    found = ModelPatcher.of(ref).model_state_dict("diffusion_model.out.2.")
    assert sorted(found) == ["diffusion_model.out.2.bias", "diffusion_model.out.2.weight"]


def test_patches_of_weights_become_a_file_with_their_strength(ref: ModelRef) -> None:
    model = ModelPatcher.of(ref)
    key = "diffusion_model.out.2.weight"
    shape = model.model_state_dict(key)[key].shape
    assert model.add_patches({key: (torch.ones(shape),), "other": (torch.ones(1),)}, 0.25) == [key]
    made = model.to_ref()
    assert made is not None
    (lora,) = made.loras
    assert isinstance(lora, LoraRef)
    assert lora.strength == 0.25
    model.add_patches({key: (torch.ones(shape),)}, 1.0, 0.5)
    with pytest.raises(NotSupportedError, match="strength_model"):
        model.to_ref()


def test_weights_that_are_changed_key_by_key_are_one_file(ref: ModelRef, folder: Path) -> None:
    model = ModelPatcher.of(ref)
    for key, value in model.get_key_patches("diffusion_model.out.").items():
        assert model.add_patches({key: value}, 0.25, 0.5) == [key]
    made = model.clone().to_ref()
    assert made is not None
    (lora,) = made.loras
    assert isinstance(lora, LoraRef)
    stored = load_file(lora.file.path)
    weight = model.model_state_dict("diffusion_model.out.2.weight")["diffusion_model.out.2.weight"]
    torch.testing.assert_close(stored["diffusion_model.out.2.diff"], weight.float() * -0.25)
    assert len(list(folder.iterdir())) == 1


def test_injections_are_refused_when_the_model_is_to_run(ref: ModelRef) -> None:
    model = ModelPatcher.of(ref)
    model.set_injections("key", [PatcherInjection(doubled, doubled)])
    with pytest.raises(NotSupportedError, match="set_injections"):
        model.to_ref()


def test_module_of_a_pack_stays_where_it_is() -> None:
    model = ModelPatcher(torch.nn.Linear(2, 3), "cpu", "cpu")
    assert model.to_ref() is None
    assert model.clone().model is model.model
    assert model.model_size() == 9 * 4
    assert model.model_state_keys() == ["weight", "bias"]
    assert model.patch_model("cpu") is model.model


def test_model_in_a_closure_travels_as_its_handle(ref: ModelRef) -> None:
    back = pickle.loads(pickle.dumps(ModelPatcher.of(ref)))
    assert back.to_ref() == ref
