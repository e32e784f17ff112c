"""Encoding for inpainting: what is erased, and what the noise mask covers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import FileRef, VaeRef
from comfyserverless.functions.registry import FUNCTIONS

CELL_PX = 4
VAE = VaeRef(FileRef("/models/averaging"))
PIXELS = torch.rand(1, 16, 24, 3, generator=torch.Generator().manual_seed(4))


class AveragingAutoencoder:
    """Encode a cell as the mean of its pixels; keep what it was given."""

    downscale_px = CELL_PX

    def encode(self, pixels: Tensor) -> Tensor:
        self.pixels = pixels
        return functional.avg_pool2d(pixels.movedim(-1, 1), CELL_PX)


class AveragingPool:
    def __init__(self) -> None:
        self.autoencoder = AveragingAutoencoder()

    def vae(self, ref: VaeRef) -> AveragingAutoencoder:
        assert ref == VAE
        return self.autoencoder


def encode(mask: Tensor, grow_by: int = 0, pixels: Tensor = PIXELS) -> tuple[Tensor, Tensor, Tensor]:
    """Return samples, noise mask, and the pixels that were encoded."""
    function, pool = FUNCTIONS["vae.encode_inpaint"], AveragingPool()
    inputs: dict[str, Any] = {"vae": VAE, "pixels": pixels, "mask": mask, "grow_by": grow_by}
    outputs = function.execute(function.load_model(inputs, pool), **inputs)
    return outputs["samples"], outputs["noise_mask"], pool.autoencoder.pixels


def dot(y: int = 8, x: int = 10) -> Tensor:
    mask = torch.zeros(1, 16, 24)
    mask[0, y, x] = 1.0
    return mask


def test_masked_pixels_are_encoded_as_gray_and_the_others_as_they_are() -> None:
    before = PIXELS.clone()
    mask = torch.rand(1, 16, 24, generator=torch.Generator().manual_seed(5))
    samples, noise_mask, pixels = encode(mask)
    is_masked = mask[0] > 0.5
    assert (pixels[0, is_masked] == 0.5).all()
    torch.testing.assert_close(pixels[0, ~is_masked], PIXELS[0, ~is_masked])
    assert torch.equal(noise_mask[0, 0], is_masked.float())
    assert samples.shape == (1, 3, 4, 6)
    assert torch.equal(PIXELS, before)


@pytest.mark.parametrize(
    ("grow_by", "rows"), [(0, (8, 8)), (1, (8, 8)), (3, (7, 9)), (4, (7, 10)), (6, (6, 11))]
)
def test_noise_mask_is_wider_than_the_mask_and_what_is_erased_is_not(
    grow_by: int, rows: tuple[int, int]
) -> None:
    _, noise_mask, pixels = encode(dot(), grow_by)
    covered = noise_mask[0, 0].any(dim=1).nonzero().flatten()
    assert (covered.min().item(), covered.max().item()) == rows
    assert noise_mask.shape == (1, 1, 16, 24)
    assert set(noise_mask.unique().tolist()) == {0.0, 1.0}
    assert (pixels != PIXELS).any(dim=-1).sum() <= 1


def test_growing_equals_counting_the_masked_pixels_around() -> None:
    mask = (torch.rand(1, 16, 24, generator=torch.Generator().manual_seed(6)) > 0.95).float()
    for grow_by in (2, 5, 6, 64):
        counted = functional.conv2d(mask[None], torch.ones(1, 1, grow_by, grow_by), padding=grow_by // 2)
        _, noise_mask, _ = encode(mask, grow_by)
        assert torch.equal(noise_mask, (counted > 0.5).float()[..., :16, :24])


def test_mask_of_another_size_is_fitted_to_the_image() -> None:
    small = torch.zeros(1, 4, 6)
    small[0, 2:, :] = 1.0
    _, noise_mask, _ = encode(small)
    assert torch.equal(noise_mask[0, 0], (torch.arange(16) >= 8).float()[:, None].expand(16, 24))


def test_image_and_mask_are_cut_to_whole_cells_around_the_centre() -> None:
    pixels = torch.rand(1, 19, 26, 4)
    mask = torch.zeros(1, 19, 26)
    mask[0, 1, 1] = 1.0
    samples, noise_mask, encoded = encode(mask, pixels=pixels)
    assert samples.shape == (1, 3, 4, 6)
    assert noise_mask.shape == (1, 1, 16, 24)
    assert noise_mask[0, 0, 0, 0] == 1.0
    torch.testing.assert_close(encoded[0, 1:, 1:], pixels[0, 2:17, 2:25, :3])


def test_one_mask_is_for_all_images_and_several_are_for_one_each() -> None:
    pixels = PIXELS.repeat(2, 1, 1, 1)
    _, one, encoded = encode(dot(), pixels=pixels)
    assert one.shape[0] == 1
    assert (encoded[:, 8, 10] == 0.5).all()
    _, two, encoded = encode(torch.cat((dot(), dot(0, 0))), pixels=pixels)
    assert two.shape[0] == 2
    assert (encoded[1, 0, 0] == 0.5).all()
    assert (encoded[0, 0, 0] != 0.5).any()


def test_masks_that_do_not_fit_the_images_are_the_prompts_fault() -> None:
    with pytest.raises(PromptError, match="2 masks do not fit 1 images"):
        encode(torch.zeros(2, 16, 24))
