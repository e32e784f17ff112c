"""Stable Diffusion 2.x: U-Nets with linear attention projections and no size condition."""

from __future__ import annotations

from comfyserverless.models.families.base import Prediction
from comfyserverless.models.families.unet_family import UnetFamily
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.unet_layout import UnetLayout

_V_PREDICTION_STD = 0.09
"""The 512-px and 768-px releases have equal shapes; this bias's spread tells the v-prediction one apart."""
_TELLTALE = "output_blocks.11.1.transformer_blocks.0.norm1.bias"


def _accepts(layout: UnetLayout) -> bool:
    return layout.is_linear and layout.adm_width is None


def _prediction(root: Weights, network: Weights) -> Prediction:
    if (
        _TELLTALE not in network
        or network.shape("input_blocks.0.0.weight")[1] != network.shape("out.2.weight")[0]
    ):
        return "epsilon"
    spread = network.load(_TELLTALE).float().std(unbiased=False).item()
    return "v_prediction" if spread > _V_PREDICTION_STD else "epsilon"


FAMILY = UnetFamily("sd2", scale_factor=0.18215, accepts=_accepts, prediction=_prediction)
