"""Find KL autoencoders in files, read their structure from shapes, and give tensors the names of diffusers."""

from __future__ import annotations

from typing import Any

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.reading.weights import Weights

_PREFIXES = ("first_stage_model.", "vae.", "")
MODULES = {
    "mid.block_1": "mid_block.resnets.0",
    "mid.block_2": "mid_block.resnets.1",
    "mid.attn_1": "mid_block.attentions.0",
    "norm_out": "conv_norm_out",
}
"""Modules that the original naming and diffusers call differently, in each half."""

_ATTENTION = {
    "norm": "group_norm",
    "q": "to_q",
    "k": "to_k",
    "v": "to_v",
    "proj_out": "to_out.0",
    "query": "to_q",
    "key": "to_k",
    "value": "to_v",
    "proj_attn": "to_out.0",
}
"""Attention's layers in the original naming and in diffusers' first one."""


def find_autoencoder(root: Weights) -> Weights:
    """Return the autoencoder of a file under diffusers' names. Raises ModelFileError if it holds no KL one."""
    for prefix in _PREFIXES:
        part = root.below(prefix)
        if "encoder.conv_in.weight" not in part or "decoder.conv_in.weight" not in part:
            continue
        if "decoder.mid.block_1.conv1.weight" in part:
            return _translate(part)
        if "decoder.mid_block.resnets.0.conv1.weight" in part:
            return part.renamed({name: _modern_name(name) for name in part})
        raise ModelFileError(f"{root.path}: this autoencoder is of another kind (supported: KL autoencoders)")
    raise ModelFileError(
        f"{root.path}: holds no autoencoder (supported: KL autoencoders of SD1.5, SD2 and SDXL)"
    )


def autoencoder_config(weights: Weights) -> dict[str, Any]:
    """Return the arguments of AutoencoderKL for tensors under diffusers' names."""
    levels = _count(weights, "encoder.down_blocks.{}.resnets.0.conv1.weight")
    stems = (f"encoder.down_blocks.{level}.resnets.0.conv1.weight" for level in range(levels))
    return {
        "block_out_channels": tuple(weights.length(stem, 0) for stem in stems),
        "layers_per_block": _count(weights, "encoder.down_blocks.0.resnets.{}.conv1.weight"),
        "down_block_types": ("DownEncoderBlock2D",) * levels,
        "up_block_types": ("UpDecoderBlock2D",) * levels,
        "latent_channels": weights.length("decoder.conv_in.weight", 1),
        "use_quant_conv": "quant_conv.weight" in weights,
        "use_post_quant_conv": "post_quant_conv.weight" in weights,
    }


def _count(weights: Weights, pattern: str) -> int:
    count = 0
    while pattern.format(count) in weights:
        count += 1
    return count


def _translate(weights: Weights) -> Weights:
    last_level = _count(weights, "encoder.down.{}.block.0.conv1.weight") - 1
    names = {name: _diffusers_name(name, last_level) for name in weights}
    return weights.renamed({old: new for old, new in names.items() if new is not None})


def _diffusers_name(name: str, last_level: int) -> str | None:
    """Map a tensor name of the original layout; None for tensors that the model does not use."""
    half, _, rest = name.partition(".")
    if half in ("quant_conv", "post_quant_conv"):
        return name
    if half not in ("encoder", "decoder"):
        return None
    module, _, leaf = rest.rpartition(".")
    for old, new in MODULES.items():
        if module == old:
            return f"{half}.{new}.{leaf}"
        if module.startswith(old + "."):
            layer = module.removeprefix(old + ".")
            inner = _ATTENTION.get(layer) if "attn" in old else _resnet_layer(layer)
            return None if inner is None else f"{half}.{new}.{inner}.{leaf}"
    kind, *path = module.split(".")
    if kind not in ("down", "up"):
        return name
    if len(path) < 2 or not path[0].isdecimal():
        return None
    level = int(path[0]) if kind == "down" else last_level - int(path[0])
    if path[1] != "block":
        return f"{half}.{kind}_blocks.{level}.{path[1]}rs.0.conv.{leaf}"
    at, layer = [*path[2:], "", ""][:2]
    return f"{half}.{kind}_blocks.{level}.resnets.{at}.{_resnet_layer(layer)}.{leaf}"


def _resnet_layer(layer: str) -> str:
    return "conv_shortcut" if layer == "nin_shortcut" else layer


def _modern_name(name: str) -> str:
    """Rename what the first versions of diffusers called attention's layers."""
    stem, layer, leaf = [*name.rsplit(".", 2), "", ""][:3]
    is_attention = stem.endswith("mid_block.attentions.0") and layer in _ATTENTION
    return f"{stem}.{_ATTENTION[layer]}.{leaf}" if is_attention else name
