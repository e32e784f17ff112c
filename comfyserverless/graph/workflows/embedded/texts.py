"""Read the texts of any file that ComfyUI writes, by what its first bytes say it is."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable

from comfyserverless.graph.workflows.embedded.containers import flac_texts, matroska_texts, mp4_texts
from comfyserverless.graph.workflows.embedded.exif import jpeg_texts, webp_texts
from comfyserverless.graph.workflows.embedded.png import PNG_MAGIC, png_texts

Texts = dict[str, str]

#: Kind -> (tells by the bytes, reads the texts).
_FORMATS: dict[str, tuple[Callable[[bytes], bool], Callable[[bytes], Texts]]] = {
    "PNG": (lambda data: data.startswith(PNG_MAGIC), png_texts),
    "WEBP": (lambda data: data[:4] == b"RIFF" and data[8:12] == b"WEBP", webp_texts),
    "JPEG": (lambda data: data.startswith(b"\xff\xd8\xff"), jpeg_texts),
    "MP4": (lambda data: data[4:8] == b"ftyp", mp4_texts),
    "WEBM": (lambda data: data.startswith(b"\x1a\x45\xdf\xa3"), matroska_texts),
    "FLAC": (lambda data: data.startswith(b"fLaC"), flac_texts),
}

FORMATS = (*_FORMATS, "safetensors", "JSON")
"""Kinds of files that are understood."""

_MAX_HEADER_BYTES = 100 << 20


def embedded_texts(data: bytes) -> tuple[str, Texts] | None:
    """Return the kind of a file and its texts by lower-case key, None if it is of no kind that has any.

    Damaged files give what could be read.
    """
    for kind, (matches, read) in _FORMATS.items():
        if matches(data):
            try:
                found = read(data)
            except (struct.error, IndexError, ValueError, zlib.error):
                found = {}
            return kind, {key.lower(): text for key, text in found.items()}
    header = _safetensors_header(data)
    return None if header is None else ("safetensors", header)


def _safetensors_header(data: bytes) -> Texts | None:
    """Return the metadata of a safetensors file, None if it is none."""
    if len(data) < 10 or data[8:9] != b"{":
        return None
    length = int.from_bytes(data[:8], "little")
    if length > min(_MAX_HEADER_BYTES, len(data) - 8):
        return None
    try:
        header = json.loads(data[8 : 8 + length])
    except (ValueError, RecursionError):
        return None
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    items = metadata.items() if isinstance(metadata, dict) else ()
    return {key.lower(): text for key, text in items if isinstance(text, str)}
