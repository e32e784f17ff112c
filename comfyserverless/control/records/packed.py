"""Hold JSON objects as text while nobody looks into them.

A parsed graph is hundreds of objects; thousands of waiting prompts would keep the garbage collector busy. As
text they are small, and can be sent to clients as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec


class PackedJson(Mapping[str, Any]):
    """A JSON object as text, read like a mapping; it is parsed anew each time."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> PackedJson:
        """Pack an object, unless it is packed."""
        return value if isinstance(value, PackedJson) else cls(to_json(value))

    def unpacked(self) -> dict[str, Any]:
        """Parse the object. Raises ValueError if it is none."""
        value = from_json(self.text)
        if not isinstance(value, dict):
            raise ValueError(f"expected a JSON object, got {type(value).__name__}")
        return value

    def __getitem__(self, key: str) -> Any:
        return self.unpacked()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.unpacked())

    def __len__(self) -> int:
        return len(self.unpacked())


def unpacked(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Parse an object if it is packed."""
    return value.unpacked() if isinstance(value, PackedJson) else value


def to_json(value: Any) -> bytes:
    """Encode as JSON, packed objects as they are; numbers unknown to JSON become null. Raises TypeError."""
    try:
        return msgspec.json.encode(value, enc_hook=_as_raw)
    except UnicodeEncodeError:  # lone surrogates are legal in JSON escapes only
        return json.dumps(value, allow_nan=False, default=_as_plain).encode()


def from_json(text: bytes) -> Any:
    """Parse JSON. Raises ValueError."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)


def _as_raw(value: Any) -> msgspec.Raw:
    if isinstance(value, PackedJson):
        return msgspec.Raw(value.text)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _as_plain(value: Any) -> dict[str, Any]:
    if isinstance(value, PackedJson):
        return value.unpacked()
    raise TypeError(f"{type(value).__name__} has no JSON form")
