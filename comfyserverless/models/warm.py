"""Import and build what every model needs, ahead of the first model; a process that forks workers imports this.

Importing this module takes some seconds and touches no device, so a forked worker starts warm.
"""

from __future__ import annotations

import importlib

import comfyserverless.models.modules  # noqa: F401  # first, as it keeps the libraries below off the network
from comfyserverless.models.text.bpe import clip_tokenizer

LIBRARIES = (
    "accelerate",
    "diffusers.models.autoencoders.autoencoder_kl",
    "diffusers.models.controlnets.controlnet",
    "diffusers.models.controlnets.controlnet_union",
    "diffusers.models.unets.unet_2d_condition",
)

for _name in LIBRARIES:
    importlib.import_module(_name)
clip_tokenizer()
