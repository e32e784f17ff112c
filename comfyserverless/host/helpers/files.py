"""Read and write files of tensors for packs; no code of a file runs."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from comfyserverless.core.errors import ModelFileError
from comfyserverless.host.models.origins import FileDict
from comfyserverless.host.models.scratch import file_ref
from comfyserverless.models.reading.pickles import read_content

_SAFE = (".safetensors", ".sft")
HEADER_BYTES = 100 << 20


def load_torch_file(
    ckpt: str, safe_load: bool = False, device: torch.device | str | None = None, return_metadata: bool = False
) -> Any:
    """Return the tensors of a file by name, with `return_metadata` a pair of them and the metadata or None.

    A pickle is unwrapped: `state_dict` in it counts, or its only entry. Raises ModelFileError, naming the file.
    """
    target = torch.device("cpu" if device is None else device)
    if str(ckpt).lower().endswith(_SAFE):
        tensors, metadata = _read_safetensors(str(ckpt), target)
    else:
        tensors, metadata = _unwrapped(read_content(str(ckpt)), target), None
    return (tensors, metadata) if return_metadata else tensors


def _read_safetensors(path: str, device: torch.device) -> tuple[dict[str, torch.Tensor], Any]:
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            tensors = FileDict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
            metadata = file.metadata()
    except (OSError, SafetensorError) as exc:
        raise ModelFileError(f"{path}: is damaged, or no safetensors file: {exc}") from exc
    return tensors.remember(file_ref(path)), metadata


def _unwrapped(content: Any, device: torch.device) -> Any:
    if isinstance(content, Mapping):
        if "state_dict" in content:
            content = content["state_dict"]
        elif len(content) == 1 and isinstance(only := next(iter(content.values())), Mapping):
            content = only
    if device.type == "cpu" or not isinstance(content, Mapping):
        return content
    return {name: item.to(device) if isinstance(item, torch.Tensor) else item for name, item in content.items()}


def save_torch_file(
    sd: Mapping[str, torch.Tensor], ckpt: str, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors as a safetensors file."""
    contiguous = {name: tensor.contiguous() for name, tensor in sd.items()}
    save_file(contiguous, os.fspath(ckpt), metadata=None if metadata is None else dict(metadata))


def safetensors_header(safetensors_path: str, max_size: int = HEADER_BYTES) -> bytes | None:
    """Return the header of a safetensors file as JSON text; None if it is longer than `max_size` bytes."""
    with open(safetensors_path, "rb") as file:
        (length_bytes,) = struct.unpack("<Q", file.read(8))
        return None if length_bytes > max_size else file.read(length_bytes)
