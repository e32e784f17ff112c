"""Read the text chunks of PNG files (PNG specification, third edition, 11.3.3) and ComfyUI's own in APNG."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"

#: A compressed text may become this long; more is a bomb.
_MAX_TEXT_BYTES = 64 << 20


def png_texts(data: bytes) -> dict[str, str]:
    """Return the texts of a PNG by keyword, the first of each."""
    found: dict[str, str] = {}
    for kind, body in _chunks(data):
        pair = _text(kind, body)
        if pair is not None:
            found.setdefault(*pair)
    return found


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = len(PNG_MAGIC)
    while position + 8 <= len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        yield data[position + 4 : position + 8], data[position + 8 : position + 8 + length]
        position += 12 + length


def _text(kind: bytes, body: bytes) -> tuple[str, str] | None:
    key, _, rest = body.partition(b"\0")
    name = key.decode("latin-1")
    if kind == b"tEXt":
        return name, rest.decode("latin-1")
    if kind == b"comf":  # of ComfyUI in animated PNG
        return name, rest.decode("latin-1")
    if kind == b"zTXt":
        return name, _inflate(rest[1:]).decode("latin-1")
    if kind == b"iTXt":
        is_compressed, rest = rest[:1] == b"\1", rest[2:]
        text = rest.split(b"\0", 2)[2]  # language and translated keyword come first
        return name, (_inflate(text) if is_compressed else text).decode("utf-8", "replace")
    return None


def _inflate(data: bytes) -> bytes:
    return zlib.decompressobj().decompress(data, _MAX_TEXT_BYTES)
