"""Values that are withheld."""

from __future__ import annotations

from typing import Any

from comfy_execution.graph import ExecutionBlocker

from .kinds import ANY, Node


class Block(Node):
    """Withhold the second result; an empty message is silence."""

    REQUIRED = {"message": ("STRING", {})}
    RETURN_TYPES = (ANY, ANY)

    def run(self, message: str) -> tuple[Any, Any]:
        return (1, ExecutionBlocker(message or None))


class BlockAll(Node):
    """Withhold all results at once."""

    RETURN_TYPES = (ANY, ANY)

    def run(self) -> Any:
        return ExecutionBlocker("everything")


class BlockOdd(Node):
    """Withhold the odd items of a list."""

    REQUIRED = {"count": ("INT", {})}
    OUTPUT_IS_LIST = (True,)

    def run(self, count: int) -> tuple[list[Any]]:
        return ([ExecutionBlocker(None) if index % 2 else index for index in range(count)],)


NODES = {f"Sem{kind.__name__}": kind for kind in (Block, BlockAll, BlockOdd)}
