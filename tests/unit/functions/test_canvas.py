"""Images that are made, inverted, cut and widened."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from comfyserverless.functions.registry import FUNCTIONS

IMAGE = torch.rand(2, 8, 10, 3, generator=torch.Generator().manual_seed(1))


def call(name: str, **inputs: Any) -> dict[str, Tensor]:
    return dict(FUNCTIONS[name].execute({}, **inputs))


def pad(image: Tensor, left: int, top: int, right: int, bottom: int, feathering: int) -> tuple[Tensor, Tensor]:
    sides = {"left": left, "top": top, "right": right, "bottom": bottom}
    padded = call("image.pad", images=image, feathering=feathering, **sides)
    return padded["images"], padded["mask"]


def test_empty_image_has_the_colour() -> None:
    image = call("image.empty", width=3, height=2, batch_size=2, color=0xFF8000)["images"]
    assert image.shape == (2, 2, 3, 3)
    assert (image.dtype, image[1, 1, 2].tolist()) == (torch.float32, [1.0, torch.tensor(128 / 255).item(), 0.0])


def test_negative_of_the_negative_is_the_image() -> None:
    inverted = call("image.invert", images=IMAGE)["images"]
    assert torch.equal(inverted, 1.0 - IMAGE)
    torch.testing.assert_close(call("image.invert", images=inverted)["images"], IMAGE)


def test_crop_takes_a_part() -> None:
    part = call("image.crop", images=IMAGE, x=2, y=1, width=3, height=4)["images"]
    assert torch.equal(part, IMAGE[:, 1:5, 2:5])


def test_crop_beyond_the_border_leaves_the_last_pixel() -> None:
    part = call("image.crop", images=IMAGE, x=99, y=6, width=5, height=5)["images"]
    assert torch.equal(part, IMAGE[:, 6:, 9:])


def test_widened_image_is_gray_and_masked_where_it_is_new() -> None:
    image, mask = pad(IMAGE, left=2, top=1, right=3, bottom=0, feathering=0)
    assert (image.shape, mask.shape) == ((2, 9, 15, 3), (1, 9, 15))
    assert torch.equal(image[:, 1:, 2:12], IMAGE)
    is_new = torch.ones(9, 15, dtype=torch.bool)
    is_new[1:, 2:12] = False
    assert torch.equal(mask[0], is_new.float())
    assert (image[:, is_new] == 0.5).all()


def test_feathering_fades_into_the_image_from_widened_sides_only() -> None:
    _, mask = pad(IMAGE, left=4, top=0, right=0, bottom=0, feathering=2)
    assert mask[0, 3, :8].tolist() == [1, 1, 1, 1, 1.0, 0.25, 0, 0]
    _, mask = pad(IMAGE, left=0, top=0, right=0, bottom=2, feathering=2)
    assert mask[0, 4:, 3].tolist() == [0, 0, 0, 0.25, 1, 1]


def test_image_too_small_to_feather_on_both_sides_is_not_feathered() -> None:
    _, mask = pad(IMAGE, left=4, top=0, right=0, bottom=0, feathering=4)
    assert mask[0, :, 4:].max() == 0.0
    _, mask = pad(IMAGE, left=4, top=0, right=0, bottom=0, feathering=3)
    assert mask[0, :, 4:].max() == 1.0


def test_alpha_is_widened_with_gray_too() -> None:
    image, _ = pad(torch.ones(1, 2, 2, 4), left=1, top=0, right=0, bottom=0, feathering=0)
    assert image[0, 0].tolist() == [[0.5] * 4, [1.0] * 4, [1.0] * 4]
