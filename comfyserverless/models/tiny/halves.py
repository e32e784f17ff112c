"""Make one half of a tiny autoencoder ready to run: weights of one file, or below a prefix of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import nn

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.autoencoder import autoencoder_dtype
from comfyserverless.models.reading.weights import Weights
from comfyserverless.models.resident.residence import Residence
from comfyserverless.models.resident.skeleton import Runner, Skeleton
from comfyserverless.models.tiny.network import tiny_decoder, tiny_encoder

DOWNSCALE_PX = 8
"""Pixels of a side of one latent cell."""

Half = Literal["encoder", "decoder"]

#: Half -> its network, and the names of its first and last convolution.
_HALVES: dict[Half, tuple[Callable[[int, int], nn.Sequential], str, str]] = {
    "encoder": (tiny_encoder, "0.weight", "14.weight"),
    "decoder": (tiny_decoder, "1.weight", "19.weight"),
}


def load_half(half: Half, weights: Weights, residence: Residence) -> tuple[Runner[nn.Sequential], int]:
    """Return a half and the channels of its latents; all of it is one layer, and no weight is loaded yet.

    Raises ModelFileError if `weights` is no such network.
    """
    build, first, last = _HALVES[half]
    if first not in weights or last not in weights:
        raise ModelFileError(f"{weights.path}: holds no TAESD {half} (it lacks {first!r} or {last!r})")
    width = weights.length(first, 0)
    channels = weights.length(last, 0) if half == "encoder" else weights.length(first, 1)
    config = {"channels": channels, "width": width}
    skeleton: Skeleton[nn.Sequential] = residence.skeletons.take(
        f"taesd {half}", config, lambda: build(channels, width)
    )
    recipes = residence.recipes(
        skeleton, weights, {name: name for name in weights}, autoencoder_dtype(residence.device)
    )
    resident = residence.register(f"taesd {half}", recipes, ((),))
    return Runner(residence.keeper, skeleton, resident, {}), channels
