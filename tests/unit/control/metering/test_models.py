"""Models have the names of their files, whatever those are, and no name is longer than a line."""

from __future__ import annotations

import pytest

from comfyserverless.control.keys import weight_key
from comfyserverless.control.metering.models import model_name
from comfyserverless.core.values import ClipRef, ControlNetRef, FileRef, LoraRef, ModelRef, Patch, VaeRef

BASE = FileRef("/models/checkpoints/a@b.safetensors")
LORA = LoraRef(FileRef("/models/loras/ink.safetensors"), 0.5)


@pytest.mark.parametrize(
    ("handles", "name"),
    [
        ((), ""),
        ((ModelRef(BASE),), "a@b.safetensors"),
        ((ModelRef(BASE, (LORA,)), VaeRef(BASE)), "a@b.safetensors+ink.safetensors, a@b.safetensors"),
        ((ModelRef(BASE), ClipRef((BASE,)), ControlNetRef(LORA.file)), "a@b.safetensors, ink.safetensors"),
    ],
)
def test_name_lists_the_files_of_the_handles(handles: tuple[ModelRef, ...], name: str) -> None:
    assert model_name(tuple(map(weight_key, handles))) == name


def test_equal_names_of_different_files_have_different_keys() -> None:
    other = FileRef("/elsewhere/a@b.safetensors")
    assert weight_key(ModelRef(BASE)) != weight_key(ModelRef(other))
    assert model_name((weight_key(ModelRef(other)),)) == "a@b.safetensors"


def test_long_names_are_cut_and_key_what_they_stand_for() -> None:
    files = [FileRef(f"/m/{'x' * 250}{nth}") for nth in range(20)]
    keys = tuple(weight_key(ClipRef((file, *files))) for file in files)
    assert len(set(keys)) == len(files)
    assert max(map(len, keys)) < 200
    assert len(model_name(keys)) <= 160


def test_patches_share_the_key_of_the_unpatched_model() -> None:
    patched = ModelRef(BASE, patches=(Patch("freeu", (("b1", 1.1),)),))
    assert weight_key(patched) == weight_key(ModelRef(BASE))


def test_types_of_a_union_controlnet_share_its_key() -> None:
    assert weight_key(ControlNetRef(BASE, (3,))) == weight_key(ControlNetRef(BASE))
