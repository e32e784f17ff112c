"""Encode what packs send to the page as binary messages."""

from __future__ import annotations

import struct
from typing import Any

from comfyserverless.host.helpers.progress import encode_preview


class BinaryEventTypes:
    """Kinds of binary messages."""

    PREVIEW_IMAGE = 1
    UNENCODED_PREVIEW_IMAGE = 2
    TEXT = 3
    PREVIEW_IMAGE_WITH_METADATA = 4


_FORMATS = {"JPEG": 1, "PNG": 2}


def binary_payload(event: int, data: Any) -> tuple[int, bytes]:
    """Return (kind, bytes after it) of a binary message; a picture that is not encoded is, and is of kind 1.

    data: bytes, or (format, picture, longest side in pixels or None) for the kind UNENCODED_PREVIEW_IMAGE.
    Raises TypeError for other data.
    """
    if event == BinaryEventTypes.UNENCODED_PREVIEW_IMAGE:
        kind = "PNG" if str(data[0]).upper() == "PNG" else "JPEG"
        picture = encode_preview((kind, data[1], data[2] if len(data) > 2 else None))
        return BinaryEventTypes.PREVIEW_IMAGE, struct.pack(">I", _FORMATS[kind]) + picture
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"a binary message needs bytes, not a {type(data).__name__}")
    return event, bytes(data)
