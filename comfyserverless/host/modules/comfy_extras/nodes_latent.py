"""ComfyUI's `comfy_extras.nodes_latent`."""

from comfyserverless.host.helpers.compositing import reshape_latent_to
from comfyserverless.host.stubs import names_of_nodes

__all__ = ["reshape_latent_to"]
__getattr__ = names_of_nodes(__name__)
