"""ComfyUI's `comfy.model_sampling`."""

from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.sampling.spaces import (
    CONST,
    EDM,
    EPS,
    IMG_TO_IMG,
    V_PREDICTION,
    X0,
    ModelSamplingContinuousEDM,
    ModelSamplingContinuousV,
    ModelSamplingDiscrete,
    ModelSamplingDiscreteFlow,
    ModelSamplingFlux,
    flux_time_shift,
    time_snr_shift,
)

__all__ = [
    "CONST",
    "EDM",
    "EPS",
    "IMG_TO_IMG",
    "V_PREDICTION",
    "X0",
    "ModelSamplingContinuousEDM",
    "ModelSamplingContinuousV",
    "ModelSamplingDiscrete",
    "ModelSamplingDiscreteFlow",
    "ModelSamplingFlux",
    "flux_time_shift",
    "time_snr_shift",
]
__getattr__ = refused(__name__)
