"""Write miniature model files for tests."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from comfyserverless.core.values import FileRef
from comfyserverless.models.reading.header import TensorInfo
from comfyserverless.models.reading.weights import Weights
from tests.support.make_tiny_models import Spec, build, clip_hf, clip_open, unet

VOCAB = 49408
MINI_CLIP = {"d": 8, "ff": 16, "layers": 2, "vocab": VOCAB}
MINI_UNET = {
    "mc": 8,
    "mults": (1, 2),
    "nres": 2,
    "depths": (1, 1),
    "mid": 1,
    "ctx": 8,
    "adm": None,
    "linear": False,
}


def write_file(path: Path, tensors: Mapping[str, Tensor]) -> FileRef:
    """Save tensors as a safetensors file and name it."""
    save_file(dict(tensors), path)
    stat = path.stat()
    return FileRef(str(path), stat.st_size, stat.st_mtime_ns)


def write_raw(path: Path, header: object, data: bytes = b"") -> str:
    """Write a file in the shape of safetensors with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return str(path)


def shapes_of(spec: Spec) -> Weights:
    """Return the names and shapes of a spec as if they were a file; nothing can be loaded."""
    return Weights("mini.safetensors", {name: TensorInfo(torch.float16, tuple(spec[name][0])) for name in spec})


def mini_unet(**changes: object) -> Spec:
    """Return the tensors of a small U-Net in the original layout."""
    return unet(**(MINI_UNET | changes))


def thinned(spec: Spec, depths: Mapping[str, int]) -> Spec:
    """Return a U-Net with fewer transformer blocks in some blocks (`input_blocks.4`), as SSD-1B was made.

    0 takes the whole attention away; of the middle block its second residual block goes too, -1 takes all.
    """
    kept = Spec()
    for name, entry in spec.items():
        block, _, inner = name.partition(".")
        number, _, inner = inner.partition(".")
        depth = depths.get("middle_block" if block == "middle_block" else f"{block}.{number}")
        if depth is None or _stays(block, number, inner, depth):
            kept[name] = entry
    return kept


def _stays(block: str, number: str, inner: str, depth: int) -> bool:
    if block == "middle_block" and depth <= 0:
        return depth == 0 and number == "0"
    if block != "middle_block":
        number, _, inner = inner.partition(".")
    if number != "1" or inner.startswith("conv."):
        return True
    part, _, rest = inner.partition(".")
    return depth > 0 and (part != "transformer_blocks" or int(rest.partition(".")[0]) < depth)


def mini_clip(prefix: str = "", projection: bool = False) -> dict[str, Tensor]:
    """Return a small CLIP text model in the Hugging Face layout."""
    return build(Spec().put(prefix, clip_hf(**MINI_CLIP, proj=projection)), "clip", torch.float16)


def mini_open_clip(prefix: str = "", layers: int = 2) -> dict[str, Tensor]:
    """Return a small CLIP text model in open_clip's layout."""
    return build(Spec().put(prefix, clip_open(**(MINI_CLIP | {"layers": layers}))), "open", torch.float16)
