"""Tell packs which node they run for."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from typing import Any, NamedTuple

from PIL import Image

from comfyserverless.host.bridge import bridge
from comfyserverless.host.helpers.progress import report


class ExecutionContext(NamedTuple):
    """What is executed; list_index: position among the mapped calls of the node."""

    prompt_id: str
    node_id: str
    list_index: int | None


_given: ContextVar[ExecutionContext | None] = ContextVar("execution_context", default=None)


def get_executing_context() -> ExecutionContext | None:
    """Return what this thread or task executes, None outside of a node."""
    given = _given.get()
    if given is not None:
        return given
    call = bridge().call
    return ExecutionContext(call.prompt_id, call.node_id, call.list_index) if call.node_id else None


class CurrentNodeContext(AbstractContextManager["CurrentNodeContext"]):
    """Say within a block that it runs for a certain node."""

    def __init__(self, prompt_id: str, node_id: str, list_index: int | None = None) -> None:
        self.context = ExecutionContext(prompt_id, node_id, list_index)
        self._token: Token[ExecutionContext | None] | None = None

    def __enter__(self) -> CurrentNodeContext:
        self._token = _given.set(self.context)
        return self

    def __exit__(self, *error: Any) -> None:
        if self._token is not None:
            _given.reset(self._token)


class ProgressRegistry:
    """Where packs report the progress of nodes by id."""

    def update_progress(
        self,
        node_id: str,
        value: float,
        max_value: float,
        image: tuple[str, Image.Image, int | None] | None = None,
    ) -> None:
        """Say how far a node is. Raises InterruptProcessingException if the prompt was stopped."""
        report(value, max_value, image, node_id)


_registry = ProgressRegistry()


def get_progress_state() -> ProgressRegistry:
    """Return where progress is reported."""
    return _registry
