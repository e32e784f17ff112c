"""ComfyUI's `comfy.model_base`."""

from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.models.network import MODELS as _MODELS
from comfyserverless.host.models.network import BaseModel, ModelType
from comfyserverless.host.sampling.spaces import CONST, EDM, EPS, V_PREDICTION

globals().update(_MODELS)

__all__ = ["CONST", "EDM", "EPS", "V_PREDICTION", "BaseModel", "ModelType"]
__getattr__ = refused(__name__)
