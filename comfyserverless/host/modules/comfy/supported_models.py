"""ComfyUI's `comfy.supported_models`: families that are told apart, other names can be imported."""

from comfyserverless.host.detecting.known import (
    FAMILIES,
    KOALA_1B,
    KOALA_700M,
    SD3,
    SD15,
    SD20,
    SDXL,
    SSD1B,
    Flux,
    FluxSchnell,
    SDXLRefiner,
    Segmind_Vega,
)
from comfyserverless.host.layers.lookups import refused

models = list(FAMILIES)

__all__ = [
    "KOALA_1B",
    "KOALA_700M",
    "SD3",
    "SD15",
    "SD20",
    "SDXL",
    "SSD1B",
    "Flux",
    "FluxSchnell",
    "SDXLRefiner",
    "Segmind_Vega",
    "models",
]
__getattr__ = refused(__name__)
