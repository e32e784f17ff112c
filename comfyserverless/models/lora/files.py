"""Read adapter files: group their tensors by the layer that they change, whatever tool wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from comfyserverless.models.lora.deltas import Delta
from comfyserverless.models.lora.kinds import find_kind, make_delta
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
    ".oft_blocks": "oft_blocks",
    ".rescale": "rescale",
    **{f".{part}.weight": part for part in ("a1", "a2", "b1", "b2")},
    **{f".lokr_{part}": f"lokr_{part}" for part in ("w1", "w1_a", "w1_b", "w2", "w2_a", "w2_b", "t1", "t2")},
}
_BIAS_SUFFIXES = (".diff_b", ".b_norm")


@dataclass(frozen=True, slots=True)
class AdapterNames:
    """Which tensors of a file make up the adapter of one weight; roles: from the role to the name."""

    roles: Mapping[str, str]

    def read(self, weights: Weights) -> Delta:
        """Load the factors, as float32. Raises ModelFileError."""
        delta = make_delta({role: weights.load(name, torch.float32) for role, name in self.roles.items()})
        assert delta is not None, "find_adapters lists complete ones only"
        return delta


def find_adapters(names: Iterable[str]) -> tuple[dict[tuple[str, str], AdapterNames], list[str]]:
    """Group tensor names by what they change: (layer's name in the file, `weight` or `bias`).

    Returns also the names, and the layers, that are not understood.
    """
    layers: dict[str, dict[str, str]] = {}
    found: dict[tuple[str, str], AdapterNames] = {}
    unknown: list[str] = []
    for name in names:
        if (bias := next((s for s in _BIAS_SUFFIXES if name.endswith(s)), None)) is not None:
            found[name.removesuffix(bias), "bias"] = AdapterNames({"diff": name})
        elif (suffix := next((s for s in _ROLES if name.endswith(s)), None)) is not None:
            layers.setdefault(name.removesuffix(suffix), {})[_ROLES[suffix]] = name
        else:
            unknown.append(name)
    for layer_name, roles in layers.items():
        if find_kind(roles) is None:
            unknown.append(layer_name)
        else:
            found[layer_name, "weight"] = AdapterNames(roles)
    return found, unknown
