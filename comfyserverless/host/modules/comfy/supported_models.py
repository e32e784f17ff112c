"""ComfyUI's `comfy.supported_models`: its names can be imported."""

from comfyserverless.host.layers.lookups import refused

__getattr__ = refused(__name__)
