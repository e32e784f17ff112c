"""ComfyUI's `comfy.sample`."""

from typing import Any

from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.sampling.ksampler import sample_by_name as sample
from comfyserverless.host.sampling.ksampler import sample_custom
from comfyserverless.host.sampling.noise import fix_empty_latent_channels, prepare_noise


def prepare_sampling(model: Any, noise_shape: Any, positive: Any, negative: Any, noise_mask: Any) -> Any:
    """Return what sampling works with: models are loaded by the workers."""
    return model, positive, negative, noise_mask, []


def cleanup_additional_models(models: Any) -> None:
    """Do nothing: models are unloaded by the workers."""


__all__ = [
    "cleanup_additional_models",
    "fix_empty_latent_channels",
    "prepare_noise",
    "prepare_sampling",
    "sample",
    "sample_custom",
]
__getattr__ = refused(__name__)
