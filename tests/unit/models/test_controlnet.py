"""ControlNet files and hints."""

from __future__ import annotations

import pytest
import torch

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.controlnet import fit_hint, load_controlnet
from comfyserverless.models.pool import ModelPool
from tests.support.make_tiny_models import controlnet_unet
from tests.unit.models.files import MINI_UNET, mini_unet, shapes_of

RESIDENCE = ModelPool().residence


def test_a_hint_of_the_wanted_size_is_unchanged() -> None:
    image = torch.rand(1, 16, 24, 3)
    assert torch.equal(fit_hint(image, 24, 16), image.movedim(-1, 1))


def test_a_hint_of_another_aspect_is_cropped_around_its_centre() -> None:
    image = torch.zeros(1, 8, 16, 3)
    image[:, :, 4:12] = 1.0
    assert fit_hint(image, 8, 8).min().item() == 1.0, "the sides are cut off"
    tall = image.movedim(1, 2)
    assert fit_hint(tall, 8, 8).min().item() == 1.0, "top and bottom are cut off"


def test_a_hint_is_resized_to_nearest_pixels_and_loses_its_alpha() -> None:
    image = torch.arange(4.0).reshape(1, 2, 2, 1).expand(1, 2, 2, 4)
    hint = fit_hint(image, 4, 4)
    assert hint.shape == (1, 3, 4, 4)
    assert hint[0, 0].tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]


def test_a_file_that_is_no_controlnet_is_refused() -> None:
    with pytest.raises(ModelFileError, match=r"mini\.safetensors: is no supported ControlNet"):
        load_controlnet(shapes_of(mini_unet()), RESIDENCE)


@pytest.mark.parametrize(
    ("mark", "kind"),
    [("lora_controlnet", "a Control-LoRA"), ("difference", "the difference of a ControlNet to a model")],
)
def test_relatives_of_controlnets_are_refused_by_kind(mark: str, kind: str) -> None:
    spec = controlnet_unet(MINI_UNET)
    spec.e(mark, 1)
    with pytest.raises(ModelFileError, match=f"is {kind}, which is not supported"):
        load_controlnet(shapes_of(spec), RESIDENCE)


@pytest.mark.parametrize("shape", [(1, 1000), (1000, 1), (1, 1), (3, 1000)])
def test_a_hint_of_an_extreme_aspect_keeps_a_pixel(shape: tuple[int, int]) -> None:
    hint = fit_hint(torch.rand(1, *shape, 3), 64, 64)
    assert hint.shape == (1, 3, 64, 64)
