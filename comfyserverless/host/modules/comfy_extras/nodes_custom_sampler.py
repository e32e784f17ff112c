"""ComfyUI's `comfy_extras.nodes_custom_sampler`."""

from comfyserverless.host.library.custom import BasicGuider as Guider_Basic
from comfyserverless.host.sampling.noise import EmptyNoise as Noise_EmptyNoise
from comfyserverless.host.sampling.noise import RandomNoise as Noise_RandomNoise
from comfyserverless.host.stubs import names_of_nodes

__all__ = ["Guider_Basic", "Noise_EmptyNoise", "Noise_RandomNoise"]
__getattr__ = names_of_nodes(__name__)
