"""Tiny autoencoders among the choices of VAELoader."""

from __future__ import annotations

import pytest

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import FileRef, VaeRef
from comfyserverless.graph.choices import Choices
from comfyserverless.nodes.loading.tiny import tiny_files
from comfyserverless.nodes.registry import BUILTIN
from tests.support.graph_fakes import FakeCatalog
from tests.support.graph_lowered import output

LOADER = BUILTIN.get("VAELoader")
assert LOADER is not None

APPROXIMATE = ["sub/taesd_decoder.pth", "taef1_decoder.pth", "taef1_encoder.pth", "taesd3_encoder.pth"]
BOTH = ["taesd_decoder.safetensors", "taesd_encoder.pth", "taesd_encoder.safetensors"]


def test_an_autoencoder_needs_both_of_its_files_at_the_top_of_the_folder() -> None:
    assert tiny_files(APPROXIMATE) == {"taef1": ("taef1_encoder.pth", "taef1_decoder.pth")}
    assert tiny_files(["taesd_encoder", "taesd_decoder.pth"]) == {}


def test_choices_are_the_files_and_then_the_tiny_ones_in_the_order_of_comfyui() -> None:
    catalog = FakeCatalog({"vae": ["b.pt", "a.pt"], "vae_approx": [*APPROXIMATE, *BOTH]})
    assert LOADER is not None
    assert Choices(catalog).of(LOADER.inputs[0]) == ["a.pt", "b.pt", "taesd", "taef1"]
    assert Choices(catalog).offers(LOADER.inputs[0], "taesd")
    assert not Choices(catalog).offers(LOADER.inputs[0], "taesd3")


async def test_loader_gives_a_handle_of_both_files() -> None:
    folder = "/models/vae_approx"
    assert await output("VAELoader", vae_name="taesd") == VaeRef(
        FileRef(f"{folder}/taesd_decoder.pth"), FileRef(f"{folder}/taesd_encoder.safetensors"), "taesd"
    )


async def test_tiny_one_without_its_encoder_is_not_found() -> None:
    with pytest.raises(PromptError, match="'taesdxl' was not found in the 'vae' folder"):
        await output("VAELoader", vae_name="taesdxl")


def test_token_changes_with_either_file() -> None:
    def token(encoder_time: int, decoder_time: int) -> object:
        times = {"taesd_encoder.pth": encoder_time, "taesd_decoder.safetensors": decoder_time}
        identities = {name: FileRef(name, 10, time) for name, time in times.items()}
        assert LOADER is not None
        assert LOADER.is_changed is not None
        return LOADER.is_changed(
            FakeCatalog({"vae_approx": BOTH}, identities=identities), {"vae_name": "taesd"}
        )

    assert token(1, 1) == token(1, 1)
    assert token(1, 1) != token(2, 1)
    assert token(1, 1) != token(1, 2)
