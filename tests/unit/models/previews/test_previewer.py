"""Which picture stands for a latent, and what becomes of it if the wanted one cannot be made."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from comfyserverless.core.errors import CapacityError, ModelFileError
from comfyserverless.core.values import FileRef, ModelRef, VaeRef
from comfyserverless.models.autoencoder import Autoencoder
from comfyserverless.models.families.base import ModelFacts
from comfyserverless.models.pool import ModelPool
from comfyserverless.models.previews.colours import guess_colours
from comfyserverless.models.previews.previewer import Previewer
from comfyserverless.models.tiny.decoder import TinyDecoder
from tests.support.tiny_autoencoders import decode_by_hand, decoder_tensors, write_tensors

MODEL = ModelRef(FileRef("/models/m"))
LATENT = torch.randn(2, 4, 2, 3, generator=torch.Generator().manual_seed(2))


class Models:
    """Models of one family without an autoencoder; decoders are real."""

    def __init__(self, family: str = "sd15") -> None:
        self.family = family
        self.error: Exception | None = None
        self.asked = 0
        self._pool = ModelPool()

    def facts(self, ref: ModelRef) -> ModelFacts:
        return ModelFacts(self.family, 4, 4, 0.5, "epsilon", context_width=8)

    def vae(self, ref: VaeRef) -> Autoencoder:
        raise ModelFileError("there is none")

    def tiny_decoder(self, file: FileRef) -> TinyDecoder:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self._pool.tiny_decoder(file)


def colours_of(denoised: Tensor) -> Tensor:
    return guess_colours(4).latent_to_rgb(denoised / 0.5)


@pytest.fixture
def decoders(tmp_path: Path) -> dict[str, FileRef]:
    """Return decoders of two families, with different numbers."""
    return {
        name: FileRef(str(write_tensors(tmp_path / f"{name}.safetensors", decoder_tensors(seed=seed))))
        for seed, name in enumerate(("taesd", "taesdxl"))
    }


@pytest.mark.parametrize(("family", "seed"), [("sd15", 0), ("sd2", 0), ("sdxl", 1)])
def test_decoder_of_the_family_shows_the_first_item_in_its_full_size(
    decoders: dict[str, FileRef], family: str, seed: int
) -> None:
    shown = Previewer(Models(family)).picture(MODEL, LATENT, decoders)
    by_hand = decode_by_hand(decoder_tensors(seed=seed), LATENT[:1])[0].clamp(0, 1).movedim(0, -1) * 255
    assert shown.dtype is torch.uint8
    assert shown.shape == (16, 24, 3)
    assert (shown.float() - by_hand).abs().max() <= 0.51, "rounded"


def test_without_decoders_colours_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    models = Models()
    shown = Previewer(models).picture(MODEL, LATENT, None)
    assert torch.equal(shown, colours_of(LATENT[:1]))
    assert models.asked == 0
    assert "TAESD" not in caplog.text


def test_missing_file_is_named_once_and_colours_are_shown(
    decoders: dict[str, FileRef], caplog: pytest.LogCaptureFixture
) -> None:
    previewer = Previewer(Models("sdxl"))
    for _ in range(3):
        shown = previewer.picture(MODEL, LATENT, {"taesd": decoders["taesd"]})
        assert torch.equal(shown, colours_of(LATENT[:1]))
    assert caplog.text.count("taesdxl_decoder in models/vae_approx") == 1
    assert previewer.picture(MODEL, LATENT, decoders).shape == (16, 24, 3), "once it is there it is used"


def test_broken_file_is_warned_of_and_tried_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    models, path = Models(), tmp_path / "taesd_decoder.safetensors"
    path.write_bytes(b"no tensors")
    previewer, broken = Previewer(models), {"taesd": FileRef(str(path))}
    for _ in range(3):
        assert torch.equal(previewer.picture(MODEL, LATENT, broken), colours_of(LATENT[:1]))
    assert models.asked == 1
    assert caplog.text.count("TAESD previews are not possible, latent2rgb is shown") == 1
    assert str(path) in caplog.text


@pytest.mark.parametrize("error", [CapacityError("no room"), torch.OutOfMemoryError("no memory")])
def test_want_of_memory_is_warned_of_once_and_tried_again(
    decoders: dict[str, FileRef], caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    models = Models()
    models.error = error
    previewer = Previewer(models)
    for _ in range(2):
        assert torch.equal(previewer.picture(MODEL, LATENT, decoders), colours_of(LATENT[:1]))
    assert caplog.text.count(str(error)) == 1
    models.error = None
    assert previewer.picture(MODEL, LATENT, decoders).shape == (16, 24, 3)


def test_decoder_of_other_channels_is_as_good_as_broken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write_tensors(tmp_path / "taesd_decoder.pth", decoder_tensors(16))
    shown = Previewer(Models()).picture(MODEL, LATENT, {"taesd": FileRef(str(file))})
    assert torch.equal(shown, colours_of(LATENT[:1]))
    assert "decodes latents of 16 channels" in caplog.text
