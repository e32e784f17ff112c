"""Joining batches, and picking items of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.batches.joining import (
    ImageJoin,
    ImagePick,
    LatentJoin,
    LatentPick,
    MaskJoin,
    MaskScale,
)


def test_images_take_the_size_and_the_alpha_of_all() -> None:
    first, second = torch.zeros(1, 4, 6, 3), torch.full((2, 8, 12, 4), 0.5)
    images = ImageJoin().execute({}, parts=[first, second])["images"]
    assert images.shape == (3, 4, 6, 4)
    assert torch.equal(images[0, ..., 3], torch.ones(4, 6))
    assert torch.equal(images[1:], torch.full((2, 4, 6, 4), 0.5))


def test_masks_take_the_size_of_the_first() -> None:
    mask = MaskJoin().execute({}, parts=[torch.zeros(4, 6), torch.ones(2, 8, 12)])["mask"]
    assert torch.equal(mask, torch.cat([torch.zeros(1, 4, 6), torch.ones(2, 4, 6)]))


def test_latents_take_the_size_of_the_first() -> None:
    parts = [torch.zeros(1, 4, 8, 8), torch.ones(2, 4, 16, 16)]
    samples = LatentJoin().execute({}, parts=parts)["samples"]
    assert torch.equal(samples, torch.cat([torch.zeros(1, 4, 8, 8), torch.ones(2, 4, 8, 8)]))


def test_latents_of_different_families_are_not_joined() -> None:
    with pytest.raises(PromptError, match=r"\[4, 16\] channels"):
        LatentJoin().execute({}, parts=[torch.zeros(1, 4, 8, 8), torch.zeros(1, 16, 8, 8)])


def _numbered(*shape: int, start: int = 0) -> Any:
    return torch.arange(start, start + shape[0]).float().reshape(-1, *[1] * (len(shape) - 1)).expand(*shape)


def test_picked_items_keep_their_order_and_have_no_mask_if_no_part_has_one() -> None:
    parts = [_numbered(3, 4, 2, 2), _numbered(2, 4, 2, 2, start=10)]
    made = LatentPick().execute({}, parts=parts, masks=[None, None], picks=[[0, 2, 3], [1, 0, 1]])
    assert made["samples"][:, 0, 0, 0].tolist() == [2, 10]
    assert made["noise_mask"] is None


def test_picked_items_keep_their_masks_and_others_are_masked_everywhere() -> None:
    parts = [_numbered(3, 4, 2, 2), _numbered(1, 4, 2, 2)]
    mask = torch.tensor([0.25, 0.5]).reshape(2, 1, 1).expand(2, 16, 16)
    made = LatentPick().execute({}, parts=parts, masks=[mask, None], picks=[[0, 1, 3], [1, 0, 1]])
    assert made["noise_mask"][:, 0, 0].tolist() == [0.5, 0.25, 1.0]  # the masks are repeated to the items


def test_picked_images_keep_their_order() -> None:
    parts = [_numbered(3, 2, 2, 3), _numbered(2, 2, 2, 3, start=10)]
    images = ImagePick().execute({}, parts=parts, picks=[[0, 1, 3], [1, 1, 2]])["images"]
    assert images[:, 0, 0, 0].tolist() == [1, 2, 11]


def test_mask_is_scaled() -> None:
    given = {"width": 6, "height": 4, "method": "area", "crop": "disabled"}
    assert MaskScale().execute({}, mask=torch.ones(8, 12), **given)["mask"].shape == (1, 4, 6)
