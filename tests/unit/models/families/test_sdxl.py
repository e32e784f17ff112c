"""The vector condition of SDXL."""

from __future__ import annotations

import math

import pytest
import torch

from comfyserverless.core.errors import PromptError
from comfyserverless.models.families.sdxl import score_condition, size_condition
from comfyserverless.models.unet import VectorCondition


def test_pooled_features_come_first_and_six_sizes_follow() -> None:
    pooled = torch.rand(2, 5)
    vector = size_condition(pooled, 96, 64, {})
    assert vector.shape == (2, 5 + 6 * 256)
    assert torch.equal(vector[:, :5], pooled)
    height, width, crop_h, crop_w, target_h, target_w = vector[0, 5:].split(256)
    assert height[0].item() == pytest.approx(math.cos(64.0), abs=1e-6)
    assert width[128].item() == pytest.approx(math.sin(96.0), abs=1e-6)
    assert torch.equal(crop_h, crop_w)
    assert crop_h.tolist() == [1.0] * 128 + [0.0] * 128
    assert torch.equal(target_h, height)
    assert torch.equal(target_w, width)


def test_the_conditioning_overrides_sizes_and_targets_follow_them() -> None:
    pooled = torch.zeros(1, 0)
    given = size_condition(pooled, 8, 8, {"width": 1024, "height": 768, "crop_w": 16, "crop_h": 4})
    plain = size_condition(pooled, 1024, 768, {"crop_w": 16, "crop_h": 4})
    assert torch.equal(given, plain)
    target = size_condition(pooled, 1024, 768, {"target_width": 512})
    assert not torch.equal(target[0, -256:], plain[0, -256:])


@pytest.mark.parametrize(
    ("options", "score"),
    [
        ({}, 6.0),
        ({"prompt_type": "positive"}, 6.0),
        ({"prompt_type": "negative"}, 2.5),
        ({"prompt_type": "negative", "aesthetic_score": 7.0}, 7.0),
    ],
)
def test_a_refiner_is_told_four_sizes_and_a_score_of_beauty(options: dict[str, object], score: float) -> None:
    pooled = torch.rand(2, 5)
    vector = score_condition(pooled, 96, 64, {"crop_h": 3.0, **options})
    assert vector.shape == (2, 5 + 5 * 256)
    assert torch.equal(vector[:, :5], pooled)
    numbers = [math.acos(part[127].item()) * 10000 ** (127 / 128) for part in vector[0, 5:].split(256)]
    assert numbers == pytest.approx([64.0, 96.0, 3.0, 0.0, score], abs=1.0)


@pytest.mark.parametrize("condition", [size_condition, score_condition])
def test_missing_pooled_features_are_the_prompts_fault(condition: VectorCondition) -> None:
    with pytest.raises(PromptError, match="needs the pooled output"):
        condition(None, 64, 64, {})
