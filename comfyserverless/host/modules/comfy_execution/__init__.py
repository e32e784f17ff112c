"""ComfyUI's `comfy_execution`."""

from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.stubs import make_modules_below

make_modules_below(__name__, refused, ("cache_provider", "caching", "jobs"))
