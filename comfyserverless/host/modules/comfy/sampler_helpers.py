"""ComfyUI's `comfy.sampler_helpers`."""

from typing import Any

from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.sampling.conditions import convert_cond, get_models_from_cond
from comfyserverless.host.sampling.masks import prepare_mask
from comfyserverless.host.sampling.views import model_view


def prepare_sampling(model: Any, noise_shape: Any, conds: Any, model_options: Any = None, **more: Any) -> Any:
    """Return (model as samplers see it, conditions, loaded models): workers load what they run."""
    return model_view(model), conds, []


def get_additional_models(conds: Any, dtype: Any) -> tuple[list[Any], int]:
    """Return models that conditions bring: none has to be loaded here."""
    return [], 0


def get_additional_models_from_model_options(model_options: Any = None) -> list[Any]:
    """Return models that options bring: none has to be loaded here."""
    return []


def cleanup_models(conds: Any, models: Any) -> None:
    """Do nothing: models are unloaded by the workers."""


def cleanup_additional_models(models: Any) -> None:
    """Do nothing: models are unloaded by the workers."""


def prepare_model_patcher(model: Any, conds: Any, model_options: Any = None) -> None:
    """Do nothing: patches go with the model."""


__all__ = [
    "cleanup_additional_models",
    "cleanup_models",
    "convert_cond",
    "get_additional_models",
    "get_additional_models_from_model_options",
    "get_models_from_cond",
    "prepare_mask",
    "prepare_model_patcher",
    "prepare_sampling",
]
__getattr__ = refused(__name__)
