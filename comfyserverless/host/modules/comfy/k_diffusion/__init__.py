"""ComfyUI's `comfy.k_diffusion`."""

from comfyserverless.host.layers.lookups import refused
from comfyserverless.host.stubs import make_modules_below

make_modules_below(__name__, refused, ("deis", "sa_solver"))
