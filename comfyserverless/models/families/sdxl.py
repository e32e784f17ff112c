"""Stable Diffusion XL: U-Nets with a vector condition of pooled text and numbers about the picture.

The base model, those that were made smaller from it (SSD-1B, Segmind Vega, KOALA), and the refiner, whose
condition holds a score of beauty in place of the target's size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.models.families.base import Prediction
from comfyserverless.models.families.unet_family import UnetFamily
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.unet_layout import UnetLayout

_SIZE_FEATURES = 256
_MAX_PERIOD = 10000

GOOD_SCORE, BAD_SCORE = 6.0, 2.5
"""Scores of beauty, of about 10, that a refiner is told for what is wanted and for what is not."""


def _accepts(layout: UnetLayout) -> bool:
    return layout.is_linear and layout.adm_width is not None and layout.level_depths[-1] > 0


def _accepts_refiner(layout: UnetLayout) -> bool:
    # Others with a vector condition have attention at their finest level (SD 2 unCLIP) or at their coarsest.
    has_outer = layout.level_depths[0] > 0 or layout.level_depths[-1] > 0
    return layout.is_linear and layout.adm_width is not None and not has_outer


def _prediction(root: Weights, network: Weights) -> Prediction:
    return "v_prediction" if "v_pred" in root else "epsilon"


def size_condition(
    pooled: Tensor | None, width_px: int, height_px: int, options: Mapping[str, object]
) -> Tensor:
    """Return pooled text features followed by the features of six sizes (Podell et al. 2023, section 2.2).

    pooled: [B, P]. Returns [B, P + 6 * 256] float32. Raises PromptError without pooled features.
    """
    width, height = options.get("width", width_px), options.get("height", height_px)
    sizes = (
        height,
        width,
        options.get("crop_h", 0),
        options.get("crop_w", 0),
        options.get("target_height", height),
        options.get("target_width", width),
    )
    return _with_features(pooled, sizes)


def score_condition(
    pooled: Tensor | None, width_px: int, height_px: int, options: Mapping[str, object]
) -> Tensor:
    """Return pooled text features followed by the features of four sizes and of a score of beauty.

    pooled: [B, P]; options: `aesthetic_score`; without it `prompt_type`, `negative` for what is not wanted,
    says which one is taken. Returns [B, P + 5 * 256] float32. Raises PromptError without pooled features.
    """
    is_unwanted = options.get("prompt_type") == "negative"
    numbers = (
        options.get("height", height_px),
        options.get("width", width_px),
        options.get("crop_h", 0),
        options.get("crop_w", 0),
        options.get("aesthetic_score", BAD_SCORE if is_unwanted else GOOD_SCORE),
    )
    return _with_features(pooled, numbers)


def _with_features(pooled: Tensor | None, numbers: Sequence[object]) -> Tensor:
    if pooled is None:
        raise PromptError("SDXL needs the pooled output of its own text encoders, this conditioning has none")
    features = torch.cat([_sinusoids(float(number)) for number in numbers])  # type: ignore[arg-type]
    return torch.cat((pooled.float(), features.to(pooled.device).expand(pooled.shape[0], -1)), dim=1)


def _sinusoids(value: float) -> Tensor:
    half = _SIZE_FEATURES // 2
    rates = torch.exp(-math.log(_MAX_PERIOD) * torch.arange(half, dtype=torch.float32) / half)
    angles = torch.tensor(value, dtype=torch.float32) * rates
    return torch.cat((angles.cos(), angles.sin()))


FAMILY = UnetFamily(
    "sdxl", scale_factor=0.13025, accepts=_accepts, prediction=_prediction, condition=size_condition
)
REFINER = UnetFamily("sdxl_refiner", scale_factor=0.13025, accepts=_accepts_refiner, condition=score_condition)
