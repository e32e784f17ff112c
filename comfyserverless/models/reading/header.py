"""Read the header of a safetensors file: names, types, shapes and places of its tensors, and nothing else.

The header is checked against the file before anything is loaded, so that a truncated or foreign file is
refused with a message that names it (format: 8 bytes little-endian length, that many bytes of JSON, data).
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from comfyserverless.core.errors import ModelFileError

HEADER_LIMIT_BYTES = 100_000_000
"""Longest header that the format allows."""

DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "C64": torch.complex64,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a file; begin_bytes counts from the start of the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin_bytes: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Header:
    """The tensors of a file by name, and its free-form metadata."""

    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]


def read_header(path: str) -> Header:
    """Read and check the header of the safetensors file at `path`.

    Raises ModelFileError, naming the file, when it is missing, truncated, not in the format, or when a
    tensor's place or size does not fit the file.
    """
    try:
        with open(path, "rb") as file:
            file_bytes = os.fstat(file.fileno()).st_size
            header_bytes = _header_length(path, file.read(8), file_bytes)
            text = file.read(header_bytes)
    except OSError as exc:
        raise ModelFileError(f"{path}: cannot be read: {exc.strerror}") from exc
    entries = _parse_json(path, text)
    metadata = entries.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict):
        raise ModelFileError(f"{path}: not a safetensors file: its __metadata__ is not a JSON object")
    start = 8 + header_bytes
    tensors = {name: _tensor_info(path, name, entry, start, file_bytes) for name, entry in entries.items()}
    return Header(tensors, {str(key): str(value) for key, value in metadata.items()})


def _header_length(path: str, first: bytes, file_bytes: int) -> int:
    if len(first) < 8:
        raise ModelFileError(f"{path}: not a safetensors file, it holds only {file_bytes} bytes")
    (length,) = struct.unpack("<Q", first)
    if length > HEADER_LIMIT_BYTES:
        raise ModelFileError(
            f"{path}: not a safetensors file: its header would be {length} bytes long,"
            f" the limit is {HEADER_LIMIT_BYTES}"
        )
    if 8 + length > file_bytes:
        raise ModelFileError(
            f"{path}: truncated: the header needs {8 + length} bytes, the file holds {file_bytes}"
        )
    return int(length)


def _parse_json(path: str, text: bytes) -> dict[str, Any]:
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ModelFileError(f"{path}: not a safetensors file: its header is not JSON") from exc
    if not isinstance(entries, dict):
        raise ModelFileError(f"{path}: not a safetensors file: its header is not a JSON object")
    return entries


def _tensor_info(path: str, name: str, entry: Any, start: int, file_bytes: int) -> TensorInfo:
    try:
        kind, shape = entry["dtype"], tuple(int(n) for n in entry["shape"])
        begin, end = (int(n) for n in entry["data_offsets"])
        dtype = DTYPES.get(kind)
    except (TypeError, KeyError, ValueError, OverflowError) as exc:
        raise ModelFileError(f"{path}: not a safetensors file: bad header entry for {name!r}") from exc
    if dtype is None:
        raise ModelFileError(f"{path}: tensor {name!r} has type {kind!r}; known are {', '.join(DTYPES)}")
    if min(shape, default=0) < 0 or begin < 0 or end - begin != math.prod(shape) * dtype.itemsize:
        raise ModelFileError(f"{path}: tensor {name!r}: {kind} {list(shape)} does not fit bytes {begin}..{end}")
    if start + end > file_bytes:
        raise ModelFileError(
            f"{path}: truncated: tensor {name!r} ends at byte {start + end}, the file holds {file_bytes}"
        )
    return TensorInfo(dtype, shape, start + begin, end - begin)
