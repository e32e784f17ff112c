"""Read the tags of films and sounds: MP4 (ISO 14496-12, with QuickTime's keys), WEBM (RFC 8794), FLAC (RFC
9639)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_SEGMENT, _TAGS, _TAG, _SIMPLE_TAG = 0x18538067, 0x1254C367, 0x7373, 0x67C8
_TAG_NAME, _TAG_TEXT = 0x45A3, 0x4487
_VORBIS_COMMENT = 4
_MAX_DEPTH = 8


def mp4_texts(data: bytes) -> dict[str, str]:
    """Return the texts of an MP4 or MOV file that was written with free keys."""
    found: dict[str, str] = {}
    for meta in _boxes_at(data, (b"moov",), (b"udta", b"meta")):
        start = 0 if meta[4:8] in (b"hdlr", b"keys") else 4  # a full box has version and flags
        children = dict(_boxes(meta[start:]))
        keys = _mp4_keys(children.get(b"keys", b""))
        for kind, item in _boxes(children.get(b"ilst", b"")):
            index = int.from_bytes(kind, "big") - 1
            value = dict(_boxes(item)).get(b"data")
            if value is not None and 0 <= index < len(keys):
                found.setdefault(keys[index], value[8:].decode("utf-8", "replace"))
    return found


def _boxes_at(data: bytes, path: tuple[bytes, ...], tail: tuple[bytes, ...]) -> Iterator[bytes]:
    """Yield the bodies of the boxes at a path, the last steps of which may be left out from the left."""
    if not path:
        for kind, body in _boxes(data):
            if kind == tail[-1]:
                yield body
            elif kind == tail[0]:
                yield from (inner for name, inner in _boxes(body) if name == tail[-1])
        return
    for kind, body in _boxes(data):
        if kind == path[0]:
            yield from _boxes_at(body, path[1:], tail)


def _boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = 0
    while position + 8 <= len(data):
        length, kind = int.from_bytes(data[position : position + 4], "big"), data[position + 4 : position + 8]
        head = 8
        if length == 1:
            length, head = int.from_bytes(data[position + 8 : position + 16], "big"), 16
        elif length == 0:
            length = len(data) - position
        if length < head:
            return
        yield kind, data[position + head : position + length]
        position += length


def _mp4_keys(data: bytes) -> list[str]:
    return [body.decode("utf-8", "replace") for _, body in _boxes(data[8:])]


def matroska_texts(data: bytes) -> dict[str, str]:
    """Return the tags of a WEBM or MKV file."""
    found: dict[str, str] = {}
    _collect_tags(data, found, 0)
    return found


def _collect_tags(data: bytes, found: dict[str, str], depth: int) -> None:
    for kind, body in _elements(data):
        if kind == _SIMPLE_TAG:
            parts = dict(_elements(body))
            if _TAG_NAME in parts and _TAG_TEXT in parts:
                name = parts[_TAG_NAME].decode("utf-8", "replace").rstrip("\0")
                found.setdefault(name, parts[_TAG_TEXT].decode("utf-8", "replace").rstrip("\0"))
        elif kind in (_SEGMENT, _TAGS, _TAG) and depth < _MAX_DEPTH:
            _collect_tags(body, found, depth + 1)


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(data):
        kind, position, _ = _number(data, position, keeps_marker=True)
        length, position, is_unknown = _number(data, position, keeps_marker=False)
        end = len(data) if is_unknown else position + length
        yield kind, data[position:end]
        position = end


def _number(data: bytes, position: int, *, keeps_marker: bool) -> tuple[int, int, bool]:
    """Read a variable-length number: (value, position after it, whether it means unknown)."""
    first = data[position]
    size = 9 - first.bit_length()
    if size > 8:
        raise ValueError("not a number of EBML")
    value = int.from_bytes(data[position : position + size], "big")
    bare = value & ((1 << (7 * size)) - 1)
    return (value if keeps_marker else bare), position + size, bare == (1 << (7 * size)) - 1


def flac_texts(data: bytes) -> dict[str, str]:
    """Return the comments of a FLAC file."""
    position = 4
    while position + 4 <= len(data):
        head, length = data[position], int.from_bytes(data[position + 1 : position + 4], "big")
        if head & 0x7F == _VORBIS_COMMENT:
            return _vorbis_comments(data[position + 4 : position + 4 + length])
        if head & 0x80:
            break
        position += 4 + length
    return {}


def _vorbis_comments(data: bytes) -> dict[str, str]:
    (vendor_length,) = struct.unpack_from("<I", data)
    position = 4 + vendor_length
    (count,) = struct.unpack_from("<I", data, position)
    position += 4
    found: dict[str, str] = {}
    for _ in range(count):
        (length,) = struct.unpack_from("<I", data, position)
        comment = data[position + 4 : position + 4 + length].decode("utf-8", "replace")
        key, _, value = comment.partition("=")
        found.setdefault(key, value)
        position += 4 + length
    return found
