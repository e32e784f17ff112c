"""Stable Diffusion XL: U-Nets with a vector condition of pooled text and numbers about the picture.

The base model, those that were made smaller from it (SSD-1B, Segmind Vega, KOALA), and the refiner, whose
condition holds a score of beauty in place of the target's size. Some files say by tensors beside the network
that they were trained on another noise process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from comfyserverless.core.errors import ModelFileError, PromptError
from comfyserverless.core.values import Patch
from comfyserverless.models.families.base import Prediction
from comfyserverless.models.families.unet_family import UnetFamily
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.unet_layout import UnetLayout

_SIZE_FEATURES = 256
_MAX_PERIOD = 10000
_HIGHEST, _LOWEST = "edm_vpred.sigma_max", "edm_vpred.sigma_min"

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


def _process(root: Weights) -> Patch | None:
    """Return the noise process of Playground v2.5, CosXL, and of models without signal at the last level."""
    if "edm_mean" in root and "edm_std" in root:
        return _edm("edm_playground_v2.5", 80.0, 0.002)
    if _HIGHEST in root:
        highest, lowest = _number(root, _HIGHEST), _number(root, _LOWEST) if _LOWEST in root else 0.002
        if not 0 < lowest <= highest < math.inf:
            raise ModelFileError(f"{root.path}: its noise levels go from {lowest:g} to {highest:g}")
        return _edm("v_prediction", highest, lowest)
    if "v_pred" in root and "ztsnr" in root:
        return Patch("model_sampling_discrete", (("sampling", "v_prediction"), ("zsnr", True)))
    return None


def _number(root: Weights, name: str) -> float:
    if math.prod(root.shape(name)) != 1:
        raise ModelFileError(f"{root.path}: {name} has the shape {list(root.shape(name))}, not one number")
    return float(root.load(name).item())


def _edm(sampling: str, highest: float, lowest: float) -> Patch:
    levels = (("sigma_max", highest), ("sigma_min", lowest))
    return Patch("model_sampling_edm", (("sampling", sampling), *levels))


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
    "sdxl",
    scale_factor=0.13025,
    accepts=_accepts,
    prediction=_prediction,
    condition=size_condition,
    process=_process,
)
REFINER = UnetFamily("sdxl_refiner", scale_factor=0.13025, accepts=_accepts_refiner, condition=score_condition)
