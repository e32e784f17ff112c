"""Read the metadata that a safetensors file carries in its header, without loading tensors."""

from __future__ import annotations

import base64
import binascii
import os
from typing import Any

import msgspec

MAX_HEADER_BYTES = 1 << 20


def read_metadata(path: str) -> dict[str, Any] | None:
    """Return the `__metadata__` of a header; None if there is none, or the header is over 1 MiB or broken."""
    try:
        with open(path, "rb") as file:
            header_bytes = int.from_bytes(file.read(8), "little")
            if not 0 < header_bytes <= min(MAX_HEADER_BYTES, os.fstat(file.fileno()).st_size):
                return None
            header = msgspec.json.decode(file.read(header_bytes))
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    return metadata if isinstance(metadata, dict) and metadata else None


def cover_image(metadata: dict[str, Any]) -> bytes | None:
    """Return the picture that training tools embed: a data URI, or a JSON list of base64 texts."""
    text = metadata.get("modelspec.thumbnail")
    if not isinstance(text, str):
        try:
            text = msgspec.json.decode(metadata.get("ssmd_cover_images") or "[]", type=list[str])[0]
        except (msgspec.DecodeError, IndexError, TypeError):
            return None
    try:
        return base64.b64decode(text.rpartition(",")[2], validate=True)
    except (binascii.Error, ValueError):
        return None
