"""Read adapter files: group their tensors by the layer that they change, whatever tool wrote them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from comfyserverless.models.lora.deltas import Delta, Difference, make_delta
from comfyserverless.models.reading.weights import Weights

_ROLES: Mapping[str, str] = {
    ".lora_up.weight": "up",
    ".lora_down.weight": "down",
    ".lora_mid.weight": "mid",
    ".lora_B.weight": "up",
    ".lora_A.weight": "down",
    ".lora_B.default.weight": "up",
    ".lora_A.default.weight": "down",
    "_lora.up.weight": "up",
    "_lora.down.weight": "down",
    ".lora.up.weight": "up",
    ".lora.down.weight": "down",
    ".lora_linear_layer.up.weight": "up",
    ".lora_linear_layer.down.weight": "down",
    ".alpha": "alpha",
    ".dora_scale": "dora_scale",
    ".diff": "diff",
    ".w_norm": "diff",
    **{f".hada_{part}": f"hada_{part}" for part in ("w1_a", "w1_b", "w2_a", "w2_b", "t1", "t2")},
    **{f".lokr_{part}": f"lokr_{part}" for part in ("w1", "w1_a", "w1_b", "w2", "w2_a", "w2_b", "t1", "t2")},
}
_BIAS_SUFFIXES = (".diff_b", ".b_norm")


def read_deltas(weights: Weights) -> tuple[dict[tuple[str, str], Delta], list[str]]:
    """Return the adapters of a file by (layer's name in it, `weight` or `bias`), and what is not understood."""
    layers: dict[str, dict[str, Tensor]] = {}
    deltas: dict[tuple[str, str], Delta] = {}
    unknown: list[str] = []
    for name in weights:
        if (bias := next((s for s in _BIAS_SUFFIXES if name.endswith(s)), None)) is not None:
            tensor = weights.load(name, torch.float32)
            deltas[name.removesuffix(bias), "bias"] = Difference({"diff": tensor})
        elif (suffix := next((s for s in _ROLES if name.endswith(s)), None)) is not None:
            layer = layers.setdefault(name.removesuffix(suffix), {})
            layer[_ROLES[suffix]] = weights.load(name, torch.float32)
        else:
            unknown.append(name)
    for layer_name, factors in layers.items():
        delta = make_delta(factors)
        if delta is None:
            unknown.append(layer_name)
        else:
            deltas[layer_name, "weight"] = delta
    return deltas, unknown
