"""Lay autoencoders out as checkpoints hold them: the original names, whichever ones their file has."""

from __future__ import annotations

from functools import partial

from comfyserverless.models.autoencoder_layout import MODULES, autoencoder_config, find_autoencoder
from comfyserverless.models.exporting.entries import Entry
from comfyserverless.models.reading.weights import Weights

_MODULES = {new: old for old, new in MODULES.items()}
_ATTENTION = {"group_norm": "norm", "to_q": "q", "to_k": "k", "to_v": "v", "to_out.0": "proj_out"}
_SAMPLING = {"downsamplers.0.conv": "downsample.conv", "upsamplers.0.conv": "upsample.conv"}


def autoencoder_entries(root: Weights) -> dict[str, Entry]:
    """Return the tensors of the autoencoder in a file, without prefix. Raises ModelFileError if it has none."""
    weights = find_autoencoder(root)
    last_level = len(autoencoder_config(weights)["block_out_channels"]) - 1
    made = {}
    for name in weights:
        info = weights.info(name)
        shape = info.shape
        original = _original_name(name, last_level)
        if ".attn_1." in original and len(shape) == 2:  # a linear layer that was a convolution of one pixel
            shape = (*shape, 1, 1)
        made[original] = Entry(info.dtype, shape, partial(weights.load, name))
    return made


def _original_name(name: str, last_level: int) -> str:
    """Return the original name of a tensor that diffusers calls `name`; others stay as they are."""
    half, _, rest = name.partition(".")
    module, _, leaf = rest.rpartition(".")
    for new, old in _MODULES.items():
        if module == new:
            return f"{half}.{old}.{leaf}"
        if module.startswith(new + "."):
            layer = module.removeprefix(new + ".")
            return f"{half}.{old}.{_ATTENTION.get(layer, _resnet_layer(layer))}.{leaf}"
    kind, *path = module.split(".")
    if kind not in ("down_blocks", "up_blocks") or len(path) < 2:
        return name
    level = int(path[0]) if kind == "down_blocks" else last_level - int(path[0])
    stem = f"{half}.{kind.removesuffix('_blocks')}.{level}"
    inner = ".".join(path[1:])
    if inner in _SAMPLING:
        return f"{stem}.{_SAMPLING[inner]}.{leaf}"
    return f"{stem}.block.{path[2]}.{_resnet_layer('.'.join(path[3:]))}.{leaf}"


def _resnet_layer(layer: str) -> str:
    return "nin_shortcut" if layer == "conv_shortcut" else layer
