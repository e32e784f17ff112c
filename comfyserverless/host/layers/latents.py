"""Describe latents of families as `comfy.latent_formats` does."""

from __future__ import annotations

from typing import Any

from torch import Tensor


class LatentFormat:
    """How a family's latent relates to what its network sees: network = (latent - shift) * scale."""

    scale_factor: float = 1.0
    shift_factor: float = 0.0
    latent_channels: int = 4
    latent_dimensions: int = 2
    spacial_downscale_ratio: int = 8
    temporal_downscale_ratio: int = 1
    latent_rgb_factors: Any = None
    latent_rgb_factors_bias: Any = None
    latent_rgb_factors_reshape: Any = None
    taesd_decoder_name: str | None = None

    def process_in(self, latent: Tensor) -> Tensor:
        """Return a latent in the network's units."""
        return (latent - self.shift_factor if self.shift_factor else latent) * self.scale_factor

    def process_out(self, latent: Tensor) -> Tensor:
        """Return a latent of the network in the units of a graph."""
        out = latent / self.scale_factor
        return out + self.shift_factor if self.shift_factor else out


def _format(name: str, scale: float, channels: int = 4, shift: float = 0.0, **more: Any) -> type[LatentFormat]:
    fields = {"scale_factor": scale, "latent_channels": channels, "shift_factor": shift, **more}
    return type(name, (LatentFormat,), fields)


class SD15(LatentFormat):
    """Stable Diffusion 1.x and 2.x."""

    taesd_decoder_name = "taesd_decoder"

    def __init__(self, scale_factor: float = 0.18215) -> None:
        self.scale_factor = scale_factor


class SDXL(LatentFormat):
    """Stable Diffusion XL."""

    scale_factor = 0.13025
    taesd_decoder_name = "taesdxl_decoder"


FORMATS: dict[str, type[LatentFormat]] = {
    "LatentFormat": LatentFormat,
    "SD15": SD15,
    "SDXL": SDXL,
    "SDXL_Playground_2_5": _format("SDXL_Playground_2_5", 0.5),
    "SD_X4": _format("SD_X4", 0.08333),
    "SC_Prior": _format("SC_Prior", 1.0, 16),
    "SC_B": _format("SC_B", 1.0 / 0.43),
    "SD3": _format("SD3", 1.5305, 16, 0.0609),
    "StableAudio1": _format("StableAudio1", 1.0, 64, latent_dimensions=1),
    "Flux": _format("Flux", 0.3611, 16, 0.1159),
    "Flux2": _format("Flux2", 1.0, 128),
    "Mochi": _format("Mochi", 1.0, 12, latent_dimensions=3),
    "LTXV": _format("LTXV", 1.0, 128, latent_dimensions=3),
    "HunyuanVideo": _format("HunyuanVideo", 0.476986, 16, latent_dimensions=3),
    "Cosmos1CV8x8x8": _format("Cosmos1CV8x8x8", 1.0, 16, latent_dimensions=3),
    "Wan21": _format("Wan21", 1.0, 16, latent_dimensions=3),
    "Wan22": _format("Wan22", 1.0, 48, latent_dimensions=3),
    "HunyuanImage21": _format("HunyuanImage21", 0.75289, 64),
    "Hunyuan3Dv2": _format("Hunyuan3Dv2", 0.9990943042622529, 64, latent_dimensions=1),
    "ACEAudio": _format("ACEAudio", 1.0, 8),
    "ChromaRadiance": _format("ChromaRadiance", 1.0, 3),
}
"""The formats by ComfyUI's names; packs check isinstance, and read channels and scale."""


def format_of(family: str, scale_factor: float, shift_factor: float, channels: int) -> LatentFormat:
    """Return the format of a model that the server runs."""
    if family in ("sdxl", "sdxl_refiner"):
        return SDXL()
    if channels == 4 and not shift_factor:
        return SD15(scale_factor)
    return _format("LatentFormat", scale_factor, channels, shift_factor)()
