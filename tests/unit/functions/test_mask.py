"""Masks: the values of each function, and the laws that growing keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.ndimage
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.registry import FUNCTIONS


def call(name: str, **inputs: Any) -> Tensor:
    (result,) = FUNCTIONS[name].execute({}, **inputs).values()
    assert isinstance(result, Tensor)
    return result


def masks(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def test_solid_mask_has_its_value_everywhere() -> None:
    assert torch.equal(call("mask.solid", value=0.25, width=3, height=2), torch.full((1, 2, 3), 0.25))


def test_inverted_mask_keeps_what_was_masked() -> None:
    mask = masks(2, 4, 5)
    assert torch.equal(call("mask.invert", mask=mask), 1.0 - mask)


def test_cropped_mask_keeps_at_least_one_pixel() -> None:
    mask = masks(2, 4, 5)
    assert torch.equal(call("mask.crop", mask=mask, x=1, y=2, width=9, height=1), mask[:, 2:3, 1:])
    assert torch.equal(call("mask.crop", mask=mask, x=9, y=9, width=1, height=1), mask[:, 3:, 4:])


def test_threshold_makes_a_mask_hard() -> None:
    mask = torch.tensor([[[0.2, 0.5, 0.7]]])
    assert call("mask.threshold", mask=mask, value=0.5).tolist() == [[[0.0, 0.0, 1.0]]]


@pytest.mark.parametrize("shape", [(2, 4, 5), (4, 5), (2, 1, 4, 5)])
def test_mask_becomes_a_gray_image(shape: tuple[int, ...]) -> None:
    mask = masks(*shape)
    image = call("mask.to_image", mask=mask)
    assert image.shape == (mask.numel() // 20, 4, 5, 3)
    assert all(torch.equal(image[..., c].reshape(-1), mask.reshape(-1)) for c in range(3))


def test_channel_of_an_image_becomes_a_mask() -> None:
    image = masks(2, 4, 5, 4)
    for index, channel in enumerate(("red", "green", "blue", "alpha")):
        assert torch.equal(call("image.to_mask", images=image, channel=channel), image[..., index])


def test_alpha_of_an_image_without_it_is_the_prompts_fault() -> None:
    with pytest.raises(PromptError, match="3 channels and no alpha"):
        call("image.to_mask", images=masks(1, 2, 2, 3), channel="alpha")


@given(
    expand=st.integers(-4, 4),
    tapered=st.booleans(),
    height=st.integers(1, 7),
    width=st.integers(1, 7),
    seed=st.integers(0, 1000),
)
def test_mask_grows_as_by_gray_morphology(
    expand: int, tapered: bool, height: int, width: int, seed: int
) -> None:
    mask = masks(2, height, width, seed=seed)
    before = mask.clone()
    corner = 0 if tapered else 1
    footprint = np.array([[corner, 1, corner], [1, 1, 1], [corner, 1, corner]])
    expected = mask.numpy().copy()
    for _ in range(abs(expand)):
        step = scipy.ndimage.grey_dilation if expand > 0 else scipy.ndimage.grey_erosion
        expected = np.stack([step(item, footprint=footprint) for item in expected])
    grown = call("mask.grow", mask=mask, expand=expand, tapered_corners=tapered)
    assert np.array_equal(grown.numpy(), expected)
    assert torch.equal(mask, before)


def test_mask_grows_far_beyond_its_size_in_no_time() -> None:
    mask = torch.zeros(1, 6, 5)
    mask[0, 2, 2] = 1.0
    assert torch.equal(call("mask.grow", mask=mask, expand=16384, tapered_corners=True), torch.ones(1, 6, 5))


def test_feathered_mask_rises_from_the_left_and_the_top() -> None:
    mask = call("mask.feather", mask=torch.ones(1, 4, 6), left=4, top=2, right=0, bottom=0)
    across, down = torch.tensor([0.25, 0.5, 0.75, 1, 1, 1]), torch.tensor([0.5, 1, 1, 1])
    assert torch.equal(mask[0], across * down[:, None])


def test_feathered_mask_falls_to_the_right_and_wraps_as_in_comfyui() -> None:
    mask = call("mask.feather", mask=torch.ones(1, 2, 6), left=0, top=0, right=4, bottom=0)
    assert mask[0, 0].tolist() == [0.25, 1, 1, 1, 0.75, 0.5]
    tall = call("mask.feather", mask=torch.ones(1, 3, 1), left=0, top=0, right=0, bottom=9)
    assert torch.allclose(tall[0, :, 0], torch.tensor([1 / 3, 1, 2 / 3]))


def test_unfeathered_mask_is_unchanged() -> None:
    mask = masks(2, 3, 4)
    assert torch.equal(call("mask.feather", mask=mask, left=0, top=0, right=0, bottom=0), mask)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("multiply", [0.0, 0.0, 0.75, 0.375]),
        ("add", [0.5, 1.0, 1.0, 1.0]),
        ("subtract", [0.5, 0.0, 0.0, 0.25]),
        ("and", [0.0, 0.0, 1.0, 0.0]),
        ("or", [0.0, 1.0, 1.0, 1.0]),
        ("xor", [0.0, 1.0, 0.0, 1.0]),
    ],
)
def test_masks_are_combined_by_the_operation(operation: str, expected: list[float]) -> None:
    destination = torch.tensor([[[0.5, 0.0, 0.75, 0.75]]])
    source = torch.tensor([[[0.0, 1.0, 1.0, 0.5]]])
    combined = call("mask.composite", destination=destination, source=source, x=0, y=0, operation=operation)
    assert combined[0, 0].tolist() == expected


def test_source_is_put_where_it_is_asked_for_and_cut_at_the_border() -> None:
    destination = torch.full((2, 4, 4), 0.25)
    combined = call(
        "mask.composite", destination=destination, source=torch.ones(3, 3), x=2, y=3, operation="add"
    )
    expected = destination.clone()
    expected[:, 3:, 2:] = 1.0
    assert torch.equal(combined, expected)
    assert destination.max() == 0.25


@pytest.mark.parametrize("place", [(4, 0), (0, 4), (9, 9)])
def test_source_beyond_the_border_changes_nothing(place: tuple[int, int]) -> None:
    destination = masks(1, 4, 4)
    x, y = place
    combined = call("mask.composite", destination=destination, source=masks(1, 2, 2), x=x, y=y, operation="xor")
    assert torch.equal(combined, destination)


def test_batches_that_do_not_fit_are_the_prompts_fault() -> None:
    with pytest.raises(PromptError, match="batch of 3 masks cannot be put on a batch of 2"):
        call("mask.composite", destination=masks(2, 4, 4), source=masks(3, 4, 4), x=0, y=0, operation="add")
