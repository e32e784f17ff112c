"""Scaling as packs call for it."""

from __future__ import annotations

import pytest
import torch

from comfyserverless.functions.resampling import resample
from comfyserverless.host.helpers import scaling


@pytest.mark.parametrize("method", ["nearest-exact", "bilinear", "area", "bicubic", "bislerp", "lanczos"])
@pytest.mark.parametrize("crop", ["disabled", "center"])
def test_methods_are_those_of_the_scaling_nodes(method: str, crop: str) -> None:
    x = torch.rand(2, 3, 6, 8, generator=torch.manual_seed(0))
    assert torch.equal(scaling.common_upscale(x, 5, 7, method, crop), resample(x, 5, 7, method, crop))


def test_frames_of_a_video_are_scaled_each() -> None:
    x = torch.rand(2, 3, 4, 6, 8, generator=torch.manual_seed(0))
    scaled = scaling.common_upscale(x, 4, 3, "bilinear", "disabled")
    assert scaled.shape == (2, 3, 4, 3, 4)
    alone = scaling.common_upscale(x[:, :, 1], 4, 3, "bilinear", "disabled")
    assert torch.allclose(scaled[:, :, 1], alone)


def test_other_modes_of_torch_are_passed_on() -> None:
    x = torch.arange(4.0).reshape(1, 1, 2, 2)
    assert scaling.common_upscale(x, 4, 4, "nearest", "disabled")[0, 0, 0].tolist() == [0, 0, 1, 1]


def test_batches_are_repeated_and_cut() -> None:
    x = torch.arange(3.0)
    assert scaling.repeat_to_batch_size(x, 5).tolist() == [0, 1, 2, 0, 1]
    assert scaling.repeat_to_batch_size(x, 2).tolist() == [0, 1]
    assert scaling.repeat_to_batch_size(x[None], 4, dim=1).tolist() == [[0, 1, 2, 0]]


def test_batches_are_interpolated_between_their_ends() -> None:
    x = torch.tensor([[0.0], [2.0]])
    assert scaling.resize_to_batch_size(x, 3).flatten().tolist() == [0.0, 1.0, 2.0]
    assert scaling.resize_to_batch_size(x[:1], 3).flatten().tolist() == [0.0, 0.0, 0.0]


def test_masks_are_fitted_to_the_shape_of_a_latent() -> None:
    mask = torch.ones(1, 16, 16)
    assert scaling.reshape_mask(mask, (2, 4, 8, 8)).shape == (2, 4, 8, 8)
    assert scaling.reshape_mask(mask, (1, 4, 3, 8, 8)).shape == (1, 4, 3, 8, 8)
    assert scaling.reshape_mask(torch.ones(5), (2, 3, 10)).shape == (2, 3, 10)
