"""Write safetensors files tensor by tensor, each made just before it is written.

The format: 8 bytes little-endian length, that many bytes of JSON (padded with spaces so that data begins at a
multiple of 8), data without gaps. Larger element types come first, so every tensor is aligned to its own.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.models.exporting.entries import Entry
from comfyserverless.models.interruption import check_interrupt
from comfyserverless.models.reading.header import DTYPES

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_ALIGNMENT_BYTES = 8


def write_file(path: Path, entries: Mapping[str, Entry], metadata: Mapping[str, str]) -> None:
    """Write entries by name. If that fails or is interrupted, nothing is left at the path.

    Raises PromptError if the disk refuses it, whatever making a tensor raises, and whatever ends the job.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            try:
                _write(file, entries, metadata)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
    except OSError as exc:
        raise PromptError(f"Saving failed: {exc.strerror}") from exc


def _write(file: BinaryIO, entries: Mapping[str, Entry], metadata: Mapping[str, str]) -> None:
    names = sorted(entries, key=lambda name: (-entries[name].dtype.itemsize, name))
    header = _header({name: entries[name] for name in names}, metadata)
    file.write(struct.pack("<Q", len(header)))
    file.write(header)
    for name in names:
        check_interrupt()
        file.write(_bytes(name, entries[name]))
    file.flush()


def _header(entries: Mapping[str, Entry], metadata: Mapping[str, str]) -> bytes:
    described: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    begin = 0
    for name, entry in entries.items():
        end = begin + entry.size_bytes
        described[name] = {
            "dtype": _NAMES[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return text + b" " * (-len(text) % _ALIGNMENT_BYTES)


def _bytes(name: str, entry: Entry) -> memoryview:
    tensor: Tensor = entry.make()
    assert tensor.dtype == entry.dtype, f"{name} is {tensor.dtype}, not {entry.dtype}"
    flat = tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
    assert flat.numel() == entry.size_bytes, f"{name} has the shape {list(tensor.shape)}, not {entry.shape}"
    return memoryview(flat.numpy().data)
