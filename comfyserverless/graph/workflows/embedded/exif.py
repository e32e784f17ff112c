"""Read texts from the EXIF part of WEBP and JPEG files (TIFF 6.0, section 2).

ComfyUI puts each text as `key:json` into a tag of its own, whatever the tag means.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_ASCII = 2
_MAX_ENTRIES = 1000


def webp_texts(data: bytes) -> dict[str, str]:
    """Return the texts of a WEBP file by key."""
    position = 12
    while position + 8 <= len(data):
        length = int.from_bytes(data[position + 4 : position + 8], "little")
        if data[position : position + 4] == b"EXIF":
            return tiff_texts(data[position + 8 : position + 8 + length])
        position += 8 + length + (length & 1)
    return {}


def jpeg_texts(data: bytes) -> dict[str, str]:
    """Return the texts of a JPEG file by key."""
    position = 2
    while position + 4 <= len(data) and data[position] == 0xFF and data[position + 1] != 0xDA:
        length = int.from_bytes(data[position + 2 : position + 4], "big")
        body = data[position + 4 : position + 2 + length]
        if data[position + 1] == 0xE1 and body.startswith(b"Exif\0\0"):
            return tiff_texts(body)
        position += 2 + length
    return {}


def tiff_texts(data: bytes) -> dict[str, str]:
    """Return the texts of the first directory of a TIFF structure, split at their first colon."""
    data = data.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    if order is None:
        return {}
    found: dict[str, str] = {}
    for text in _ascii_values(data, order):
        key, colon, value = text.partition(":")
        if colon:
            found.setdefault(key, value)
    return found


def _ascii_values(data: bytes, order: str) -> Iterator[str]:
    (directory,) = struct.unpack_from(f"{order}I", data, 4)
    (count,) = struct.unpack_from(f"{order}H", data, directory)
    for index in range(min(count, _MAX_ENTRIES)):
        at = directory + 2 + 12 * index
        _tag, kind, length, offset = struct.unpack_from(f"{order}HHII", data, at)
        if kind == _ASCII:
            start = at + 8 if length <= 4 else offset
            yield data[start : start + length].rstrip(b"\0").decode("utf-8", "replace")
