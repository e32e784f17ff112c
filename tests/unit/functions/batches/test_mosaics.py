"""Tiles on a canvas."""

from __future__ import annotations

import pytest
import torch

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.batches.mosaics import ImageMergeTiles


def test_tiles_of_an_image_give_the_image() -> None:
    image = torch.rand(2, 10, 14, 3, generator=torch.Generator().manual_seed(1))
    boxes = [[left, top] for top in (0, 4) for left in (0, 4, 8)]
    parts = [image[:, top : top + 6, left : left + 6] for left, top in boxes]
    made = ImageMergeTiles().execute({}, parts=parts, boxes=boxes, width=14, height=10, overlap=2)["images"]
    assert torch.allclose(made, image, atol=1e-6)  # weighted means round


def test_tiles_fade_into_each_other_where_they_overlap() -> None:
    parts = [torch.zeros(1, 2, 6, 1), torch.ones(1, 2, 6, 1)]
    made = ImageMergeTiles().execute({}, parts=parts, boxes=[[0, 0], [3, 0]], width=9, height=2, overlap=3)[
        "images"
    ]
    assert made[0, 0, :, 0].tolist() == pytest.approx([0, 0, 0, 0.25, 0.5, 0.75, 1, 1, 1])


def test_tiles_of_different_sizes_are_refused() -> None:
    parts = [torch.zeros(1, 2, 6, 1), torch.ones(1, 2, 5, 1)]
    with pytest.raises(PromptError, match="one size"):
        ImageMergeTiles().execute({}, parts=parts, boxes=[[0, 0], [3, 0]], width=9, height=2, overlap=3)
