"""Let texts hold what PostgreSQL's cannot: the character NUL, which clients may put into an id."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.types.string import StrDumperUnknown, TextLoader

_ESCAPE = "\x1a"


def escape(text: str) -> str:
    """Return a text without NUL that stands for this one; nearly all stand for themselves."""
    if "\x00" not in text and _ESCAPE not in text:
        return text
    return text.replace(_ESCAPE, f"{_ESCAPE}1").replace("\x00", f"{_ESCAPE}0")


def unescape(text: str) -> str:
    """Return the text that was escaped."""
    return text.replace(f"{_ESCAPE}0", "\x00").replace(f"{_ESCAPE}1", _ESCAPE) if _ESCAPE in text else text


class _Dumper(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escape(obj))


class _Loader(TextLoader):
    def load(self, data: Buffer) -> str:
        text = super().load(data)
        assert isinstance(text, str), "the connection speaks UTF-8"
        return unescape(text)


def escape_texts(connection: psycopg.Connection[Any]) -> None:
    """Escape what a connection sends and receives as text."""
    connection.adapters.register_dumper(str, _Dumper)
    connection.adapters.register_loader("text", _Loader)
