"""Canny's edges: where they lie, what the thresholds do. A recorded picture is among the parity cases."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.edges import _hysteresis
from comfyserverless.functions.registry import FUNCTIONS


def canny(images: Tensor, low: float = 0.1, high: float = 0.3) -> Tensor:
    outputs = FUNCTIONS["image.canny"].execute({}, images=images, low_threshold=low, high_threshold=high)
    edges: Tensor = outputs["images"]
    return edges


def square(value: float = 1.0) -> Tensor:
    image = torch.zeros(1, 24, 24, 3)
    image[:, 8:16, 8:16] = value
    return image


def test_outline_of_a_square_is_closed_thin_and_white_on_black() -> None:
    edges = canny(square())
    assert edges.shape == (1, 24, 24, 3)
    assert set(edges.unique().tolist()) == {0.0, 1.0}
    assert all(torch.equal(edges[..., 0], edges[..., channel]) for channel in (1, 2))
    line = edges[0, :, :, 0]
    assert line[12].nonzero().flatten().tolist() in ([7, 16], [8, 15], [7, 8, 15, 16], [7, 15], [8, 16])
    assert line[10:14, 10:14].sum() == 0
    assert line[:5].sum() == line[:, :5].sum() == line[19:].sum() == line[:, 19:].sum() == 0


def test_turned_image_has_turned_edges() -> None:
    image = torch.rand(1, 16, 16, 3, generator=torch.Generator().manual_seed(2))
    turned = canny(image.transpose(1, 2)).transpose(1, 2)
    assert (turned != canny(image)).float().mean() < 0.02  # ties of a direction may round to the other side


def test_faint_edges_need_low_thresholds() -> None:
    faint = square(0.1)
    assert canny(faint, 0.01, 0.1).sum() > 0
    assert canny(faint, 0.01, 0.9).sum() == 0


def test_weight_of_a_colour_is_its_brightness() -> None:
    green, blue = torch.zeros(2, 1, 24, 24, 3).unbind()
    green[:, 8:16, 8:16, 1] = 1.0
    blue[:, 8:16, 8:16, 2] = 1.0
    assert canny(green, 0.5, 0.9).sum() > 0
    assert canny(blue, 0.5, 0.9).sum() == 0


@pytest.mark.parametrize("channels", [1, 4])
def test_gray_and_transparent_images_have_edges_too(channels: int) -> None:
    image = square()[..., :1].expand(-1, -1, -1, 3)
    other = image[..., :1] if channels == 1 else torch.cat((image, torch.rand(1, 24, 24, 1)), dim=-1)
    assert torch.equal(canny(other), canny(image))


def test_images_of_a_batch_do_not_touch_each_other() -> None:
    images = torch.cat((square(), torch.zeros_like(square()), square(0.5)))
    edges = canny(images)
    assert torch.equal(edges[0], canny(images[:1])[0])
    assert edges[1].sum() == 0


@given(seed=st.integers(0, 500))
def test_weak_pixels_stay_exactly_where_a_way_of_weak_ones_leads_to_a_strong_one(seed: int) -> None:
    magnitude = torch.rand(7, 9, generator=torch.Generator().manual_seed(seed))
    low, high = 0.55, 0.95
    weak, strong = (magnitude > low).float()[None], (magnitude > high).float()[None]
    while not torch.equal(grown := functional.max_pool2d(strong, 3, 1, 1) * weak, strong):
        strong = grown
    assert torch.equal(_hysteresis(magnitude, low, high), strong[0])


@pytest.mark.parametrize(
    ("image", "low", "high", "words"),
    [
        (torch.zeros(1, 8, 8, 3), 0.5, 0.4, "low_threshold 0.5 is above high_threshold 0.4"),
        (torch.zeros(1, 8, 2, 3), 0.1, 0.4, "at least 3x3 pixels, not 2x8"),
    ],
)
def test_what_has_no_edges_is_the_prompts_fault(image: Tensor, low: float, high: float, words: str) -> None:
    with pytest.raises(PromptError, match=words):
        canny(image, low, high)
