"""Change tokens, and nodes whose results are their own."""

from __future__ import annotations

from typing import Any

from .kinds import ANY, Node


class Always(Node):
    """Run always."""

    OPTIONAL = {"value": (ANY, {})}

    @classmethod
    def IS_CHANGED(cls, **given: Any) -> float:
        return float("nan")

    def run(self, value: Any = None) -> tuple[Any]:
        return (value,)


class SaysTrue(Always):
    """Say true, which is a token like any other."""

    @classmethod
    def IS_CHANGED(cls, **given: Any) -> bool:
        return True


class Token(Always):
    """Change with something that is no input; linked inputs are null."""

    now = 0

    @classmethod
    def IS_CHANGED(cls, value: Any = "nothing") -> str:
        return f"{cls.now} {value}"


class SetToken(Node):
    """Change the token of the others, for the next prompt."""

    REQUIRED = {"token": ("INT", {})}
    OUTPUT_NODE = True

    def run(self, token: int) -> tuple[Any]:
        Token.now = token
        return (None,)


class BadToken(Always):
    """Fail to say whether it has changed, which means always."""

    @classmethod
    def IS_CHANGED(cls, **given: Any) -> str:
        raise RuntimeError("who knows")


class Once(Node):
    """Have a result of its own for every id."""

    NOT_IDEMPOTENT = True
    OPTIONAL = {"value": (ANY, {})}

    def run(self, value: Any = None) -> tuple[Any]:
        return (value,)


NODES = {f"Sem{kind.__name__}": kind for kind in (Always, SaysTrue, Token, SetToken, BadToken, Once)}
