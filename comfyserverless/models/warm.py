"""Import the model architectures ahead of time; the zygote does, so that no worker has to.

Elsewhere they are imported where a model is built, which keeps tests and tools that build none quick.
"""

from __future__ import annotations

from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.controlnets.controlnet import ControlNetModel
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel

ARCHITECTURES = (AutoencoderKL, ControlNetModel, UNet2DConditionModel)
