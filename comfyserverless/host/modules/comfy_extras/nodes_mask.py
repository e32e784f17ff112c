"""ComfyUI's `comfy_extras.nodes_mask`."""

from comfyserverless.host.helpers.compositing import composite
from comfyserverless.host.stubs import names_of_nodes

__all__ = ["composite"]
__getattr__ = names_of_nodes(__name__)
