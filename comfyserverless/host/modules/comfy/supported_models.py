"""ComfyUI's `comfy.supported_models`: families that are told apart, other names can be imported."""

from comfyserverless.host.detecting.known import (
    FAMILIES,
    SD3,
    SD15,
    SD20,
    SDXL,
    Flux,
    FluxSchnell,
    SDXLRefiner,
)
from comfyserverless.host.layers.lookups import refused

models = list(FAMILIES)

__all__ = ["SD3", "SD15", "SD20", "SDXL", "Flux", "FluxSchnell", "SDXLRefiner", "models"]
__getattr__ = refused(__name__)
