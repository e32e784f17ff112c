"""ComfyUI's `comfy.ldm.modules.diffusionmodules`: modules that have no file here can be imported, and refuse to
work."""

from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.stubs import make_modules_below

make_modules_below(__name__, refused)
