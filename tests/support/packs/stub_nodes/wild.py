"""The two tricks that many packs play: a type that differs from none, and a dict that has any key."""

from __future__ import annotations

from typing import Any


class AnyType(str):
    """A type name that says of itself that it differs from no other."""

    def __ne__(self, other: object) -> bool:
        return False


ANY = AnyType("STUB_ANY")


class AnyKey(dict[str, Any]):
    """Inputs of any name."""

    def __contains__(self, key: object) -> bool:
        return True

    def __getitem__(self, key: str) -> Any:
        return (ANY,)
