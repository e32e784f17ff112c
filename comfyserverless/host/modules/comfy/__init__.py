"""ComfyUI's `comfy`: parts of it are there without an import of theirs, as on a server that has loaded them."""

import importlib
from types import ModuleType

from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.stubs import make_modules_below

_WITHOUT_FILE = (
    "audio_encoders",
    "background_removal",
    "clip_model",
    "context_windows",
    "diffusers_convert",
    "diffusers_load",
    "extra_samplers",
    "gligen",
    "image_encoders",
    "lora_convert",
    "memory_management",
    "multigpu",
    "nested_tensor",
    "pinned_memory",
    "pixel_space_convert",
    "quant_ops",
    "t2i_adapter",
    "windows",
)
make_modules_below(__name__, refused, _WITHOUT_FILE)


def __getattr__(name: str) -> ModuleType:
    """Import a part of the package when it is first used."""
    if not name.startswith("__"):
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as exc:
            if exc.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"comfyserverless has no {__name__}.{name}", name=name)
