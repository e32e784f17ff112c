"""Erase what a mask covers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.registry import FUNCTIONS

PIXELS = torch.rand(2, 21, 18, 4, generator=torch.Generator().manual_seed(1))


def erase(mask: Tensor) -> tuple[Tensor, Tensor]:
    outputs = FUNCTIONS["image.erase"].execute({}, images=PIXELS, mask=mask)
    return outputs["images"], outputs["mask"]


def test_what_is_masked_becomes_gray_and_all_is_cut_to_whole_cells_around_the_centre() -> None:
    mask = torch.zeros(1, 21, 18)
    mask[:, 4:9, 3:7] = 0.75
    before = PIXELS.clone()
    images, fitted = erase(mask)
    assert images.shape == (2, 16, 16, 3)
    assert torch.equal(fitted, mask[:, None, 2:18, 1:17])
    is_masked = fitted[0, 0] > 0.5
    assert (images[:, is_masked] == 0.5).all()
    torch.testing.assert_close(images[:, ~is_masked], PIXELS[:, 2:18, 1:17, :3][:, ~is_masked])
    assert torch.equal(PIXELS, before)


def test_masks_of_another_size_are_fitted() -> None:
    images, fitted = erase(torch.ones(7, 6))
    assert torch.equal(fitted, torch.ones(1, 1, 16, 16))
    assert (images == 0.5).all()


def test_masks_that_fit_no_images_are_refused() -> None:
    with pytest.raises(PromptError, match="3 masks do not fit 2 images"):
        erase(torch.ones(3, 21, 18))
