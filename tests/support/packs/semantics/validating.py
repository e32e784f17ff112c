"""Validators of packs."""

from __future__ import annotations

from typing import Any

from .kinds import ANY, Node

SMALL = ("INT", {"min": 0, "max": 9})


class Strict(Node):
    """Say what is wrong with one input, and take any other as declared."""

    REQUIRED = {"value": SMALL, "other": SMALL}
    OUTPUT_NODE = True

    @classmethod
    def VALIDATE_INPUTS(cls, value: int) -> Any:
        if value is None or value < 50:
            return True
        return "above all" if value > 90 else False

    def run(self, value: int, other: int) -> dict[str, Any]:
        return {"ui": {"text": [repr(value)]}}


class Everything(Node):
    """Look at all inputs at once."""

    REQUIRED = {"value": SMALL, "other": SMALL}
    OUTPUT_NODE = True

    @classmethod
    def VALIDATE_INPUTS(cls, **given: Any) -> Any:
        return True if given["value"] != 13 else "unlucky"

    def run(self, value: int, other: int) -> dict[str, Any]:
        return {"ui": {"text": [repr((value, other))]}}


class Types(Node):
    """Look at the types of links instead of the server."""

    REQUIRED = {"value": ("WEIRD", {})}
    OUTPUT_NODE = True

    @classmethod
    def VALIDATE_INPUTS(cls, input_types: dict[str, str]) -> Any:
        return True if input_types == {"value": "INT"} else f"not {input_types}"

    def run(self, value: Any) -> dict[str, Any]:
        return {"ui": {"text": [repr(value)]}}


class Broken(Node):
    """Fail while it looks."""

    REQUIRED = {"value": SMALL}
    OUTPUT_NODE = True

    @classmethod
    def VALIDATE_INPUTS(cls, value: int) -> Any:
        raise RuntimeError("cannot look")

    def run(self, value: int) -> dict[str, Any]:
        return {"ui": {"text": [repr(value)]}}


class Moody(Node):
    """Know its inputs at loading, and not when a prompt comes."""

    OUTPUT_NODE = True
    is_loaded = False

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        if cls.is_loaded:
            raise RuntimeError("no mood")
        return {"required": {}}

    def run(self) -> dict[str, Any]:
        return {"ui": {"text": ["never"]}}


class SpoilMood(Node):
    """Make the other one fail from now on."""

    OUTPUT_NODE = True

    def run(self) -> dict[str, Any]:
        Moody.is_loaded = True
        return {"ui": {"text": ["done"]}}


class Combo(Node):
    """Offer choices."""

    REQUIRED = {"choice": (["a", "b"], {}), "many": (ANY, {})}
    RETURN_TYPES = (["a", "b"],)
    OUTPUT_NODE = True

    def run(self, choice: str, many: Any) -> dict[str, Any]:
        return {"ui": {"text": [f"{choice} {many}"]}, "result": (choice,)}


NODES = {f"Sem{kind.__name__}": kind for kind in (Strict, Everything, Types, Broken, Moody, SpoilMood, Combo)}
