"""Stable Diffusion 1.x: U-Nets with convolutional attention projections and eight heads."""

from __future__ import annotations

from comfyserverless.models.families.unet_family import UnetFamily
from comfyserverless.models.unet_layout import UnetLayout


def _accepts(layout: UnetLayout) -> bool:
    return not layout.is_linear and layout.adm_width is None


FAMILY = UnetFamily("sd15", scale_factor=0.18215, accepts=_accepts)
