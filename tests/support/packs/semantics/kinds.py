"""Types and small parts that the classes of this pack share."""

from __future__ import annotations

from typing import Any


class AnyType(str):
    """A type that differs from none."""

    def __ne__(self, other: object) -> bool:
        return False


ANY = AnyType("*")


class Node:
    """What most classes have in common."""

    CATEGORY = "semantics"
    FUNCTION = "run"
    RETURN_TYPES: tuple[Any, ...] = (ANY,)
    REQUIRED: dict[str, Any] = {}
    OPTIONAL: dict[str, Any] = {}
    HIDDEN: dict[str, str] = {}

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": cls.REQUIRED, "optional": cls.OPTIONAL, "hidden": cls.HIDDEN}
