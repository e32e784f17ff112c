"""Name families of networks, and what of their structure tells them apart (`comfy.supported_models`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class Family:
    """A family of models. unet_config: what all of its models have; the instance's: that of one model."""

    unet_config: ClassVar[dict[str, Any]] = {}
    unet_extra_config: ClassVar[dict[str, Any]] = {}
    required_keys: ClassVar[dict[str, Any]] = {}

    def __init__(self, unet_config: Mapping[str, Any]) -> None:
        vars(self)["unet_config"] = {**unet_config, **self.unet_extra_config}

    @classmethod
    def matches(cls, unet_config: Mapping[str, Any], state_dict: Mapping[str, Any] | None = None) -> bool:
        """Tell whether a structure is one of this family."""
        is_alike = all(unet_config.get(name, ...) == value for name, value in cls.unet_config.items())
        return is_alike and (state_dict is None or all(name in state_dict for name in cls.required_keys))


class SD15(Family):
    """Stable Diffusion 1."""

    unet_config: ClassVar[dict[str, Any]] = {
        "context_dim": 768,
        "model_channels": 320,
        "use_linear_in_transformer": False,
        "adm_in_channels": None,
        "use_temporal_attention": False,
    }
    unet_extra_config: ClassVar[dict[str, Any]] = {"num_heads": 8, "num_head_channels": -1}


class SD20(Family):
    """Stable Diffusion 2."""

    unet_config: ClassVar[dict[str, Any]] = {
        "context_dim": 1024,
        "model_channels": 320,
        "use_linear_in_transformer": True,
        "adm_in_channels": None,
        "use_temporal_attention": False,
    }
    unet_extra_config: ClassVar[dict[str, Any]] = {"num_heads": -1, "num_head_channels": 64}


class SDXLRefiner(Family):
    """The refiner of Stable Diffusion XL."""

    unet_config: ClassVar[dict[str, Any]] = {
        "model_channels": 384,
        "use_linear_in_transformer": True,
        "context_dim": 1280,
        "adm_in_channels": 2560,
        "transformer_depth": [0, 0, 4, 4, 4, 4, 0, 0],
        "use_temporal_attention": False,
    }
    unet_extra_config: ClassVar[dict[str, Any]] = SD20.unet_extra_config


class SDXL(Family):
    """Stable Diffusion XL."""

    unet_config: ClassVar[dict[str, Any]] = {
        "model_channels": 320,
        "use_linear_in_transformer": True,
        "transformer_depth": [0, 0, 2, 2, 10, 10],
        "context_dim": 2048,
        "adm_in_channels": 2816,
        "use_temporal_attention": False,
    }
    unet_extra_config: ClassVar[dict[str, Any]] = SD20.unet_extra_config


class SSD1B(SDXL):
    """SSD-1B, made smaller from Stable Diffusion XL."""

    unet_config: ClassVar[dict[str, Any]] = {**SDXL.unet_config, "transformer_depth": [0, 0, 2, 2, 4, 4]}


class Segmind_Vega(SDXL):
    """Segmind Vega, made still smaller."""

    unet_config: ClassVar[dict[str, Any]] = {**SDXL.unet_config, "transformer_depth": [0, 0, 1, 1, 2, 2]}


class KOALA_700M(SDXL):
    """KOALA of 700 million parameters."""

    unet_config: ClassVar[dict[str, Any]] = {**SDXL.unet_config, "transformer_depth": [0, 2, 5]}


class KOALA_1B(SDXL):
    """KOALA of a billion parameters."""

    unet_config: ClassVar[dict[str, Any]] = {**SDXL.unet_config, "transformer_depth": [0, 2, 6]}


class SD3(Family):
    """Stable Diffusion 3."""

    unet_config: ClassVar[dict[str, Any]] = {"in_channels": 16, "pos_embed_scaling_factor": None}


class Flux(Family):
    """Flux with a guidance input."""

    unet_config: ClassVar[dict[str, Any]] = {"image_model": "flux", "guidance_embed": True}


class FluxSchnell(Family):
    """Flux without one."""

    unet_config: ClassVar[dict[str, Any]] = {"image_model": "flux", "guidance_embed": False}


_SMALLER: tuple[type[Family], ...] = (SSD1B, KOALA_700M, KOALA_1B, Segmind_Vega)

FAMILIES: tuple[type[Family], ...] = (SD15, SD20, SDXLRefiner, SDXL, *_SMALLER, SD3, Flux, FluxSchnell)
"""In the order in which they are tried."""
