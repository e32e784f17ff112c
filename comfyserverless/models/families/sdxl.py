"""Stable Diffusion XL (base): U-Nets with a vector condition of pooled text and picture sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.models.families.base import Prediction
from comfyserverless.models.families.unet_family import UnetFamily
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.unet_layout import UnetLayout

_SIZE_FEATURES = 256
_MAX_PERIOD = 10000


def _accepts(layout: UnetLayout) -> bool:
    # The refiner has a vector condition too, but no attention at its coarsest level; its condition differs.
    return layout.is_linear and layout.adm_width is not None and layout.level_depths[-1] > 0


def _prediction(root: Weights, network: Weights) -> Prediction:
    return "v_prediction" if "v_pred" in root else "epsilon"


def size_condition(
    pooled: Tensor | None, width_px: int, height_px: int, options: Mapping[str, object]
) -> Tensor:
    """Return pooled text features followed by the features of six sizes (Podell et al. 2023, section 2.2).

    pooled: [B, P]. Returns [B, P + 6 * 256] float32. Raises PromptError without pooled features.
    """
    if pooled is None:
        raise PromptError("SDXL needs the pooled output of its own text encoders, this conditioning has none")
    width, height = options.get("width", width_px), options.get("height", height_px)
    sizes = (
        height,
        width,
        options.get("crop_h", 0),
        options.get("crop_w", 0),
        options.get("target_height", height),
        options.get("target_width", width),
    )
    features = torch.cat([_sinusoids(float(size)) for size in sizes])  # type: ignore[arg-type]
    return torch.cat((pooled.float(), features.to(pooled.device).expand(pooled.shape[0], -1)), dim=1)


def _sinusoids(value: float) -> Tensor:
    half = _SIZE_FEATURES // 2
    rates = torch.exp(-math.log(_MAX_PERIOD) * torch.arange(half, dtype=torch.float32) / half)
    angles = torch.tensor(value, dtype=torch.float32) * rates
    return torch.cat((angles.cos(), angles.sin()))


FAMILY = UnetFamily(
    "sdxl", scale_factor=0.13025, accepts=_accepts, prediction=_prediction, condition=size_condition
)
