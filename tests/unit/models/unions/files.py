"""Make union ControlNet files of any structure, in the naming of the releases."""

from __future__ import annotations

from typing import Any

from comfyserverless.models.controlnet import controlnet_names
from tests.support.make_tiny_models import Spec, controlnet_unet
from tests.unit.models.files import shapes_of

TYPE_WIDTH = 256
SMALL = {
    "mc": 32,
    "mults": (1, 2),
    "nres": 2,
    "depths": (0, 1),
    "mid": 1,
    "ctx": 8,
    "adm": 12,
    "linear": True,
}


def union_controlnet(structure: dict[str, Any], types: int, layers: int = 1) -> Spec:
    """Return the tensors of a union ControlNet, those of its encoder under their original names."""
    spec, width = controlnet_unet(structure), structure["mc"]
    spec.e("task_embedding", types, width, gain=2.0)
    for layer in range(layers):
        stem = f"transformer_layes.{layer}"
        spec.w(f"{stem}.attn.in_proj_weight", 3 * width, width)
        spec.b(f"{stem}.attn.in_proj_bias", 3 * width)
        spec.lin(f"{stem}.attn.out_proj", width, width)
        spec.lin(f"{stem}.mlp.c_fc", 4 * width, width)
        spec.lin(f"{stem}.mlp.c_proj", width, 4 * width)
        spec.norm(f"{stem}.ln_1", width)
        spec.norm(f"{stem}.ln_2", width)
    spec.lin("spatial_ch_projs", width, width)
    spec.lin("control_add_embedding.linear_1", 4 * width, TYPE_WIDTH * types)
    spec.lin("control_add_embedding.linear_2", 4 * width, 4 * width)
    return spec


def released(spec: Spec) -> Spec:
    """Return the tensors under the names of the releases, which are those of the library."""
    names = controlnet_names(shapes_of(spec))
    return Spec({names[name].replace("class_embedding", "add_embedding"): spec[name] for name in spec})
