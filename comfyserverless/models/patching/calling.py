"""Call the functions of patches, so that what they raise names them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from comfyserverless.core.errors import ComfyServerlessError, WorkerError


def call(point: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a function of a patch; point: where it is called, as ComfyUI names it.

    Raises WorkerError with the type and the frames of whatever it raises but our own errors and lack of memory.
    """
    try:
        return function(*arguments, **named)
    except (ComfyServerlessError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # the border to code of packs
        cls = type(error)
        kind = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
        frames = tuple(traceback.format_tb(error.__traceback__))
        raise WorkerError(f"{point} {name_of(function)}: {error}", kind, frames) from error


def name_of(function: object) -> str:
    """Return how a callable is called by people: its module and name, of an object its class."""
    while isinstance(function, partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}"


class Executor:
    """Call wrappers around a function, the first one outermost: each gets the rest as its first argument.

    class_obj: whose method the function is.
    """

    def __init__(
        self, point: str, original: Callable[..., Any], class_obj: Any, wrappers: Sequence[Callable[..., Any]]
    ) -> None:
        self.original = original
        self.class_obj = class_obj
        self._point = point
        self._wrappers = wrappers

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the first wrapper with what is left of this, or the function if there is none."""
        if not self._wrappers:
            return self.original(*arguments, **named)
        first, *rest = self._wrappers
        inner = Executor(self._point, self.original, self.class_obj, rest)
        return call(f"wrapper {self._point}", first, inner, *arguments, **named)

    execute = __call__


def wrappers_of(kind: str, transformer_options: Mapping[str, Any]) -> list[Callable[..., Any]]:
    """List the wrappers of a kind (`diffusion_model`, ...) in the order in which they were added."""
    by_key: Mapping[Any, Sequence[Callable[..., Any]]] = transformer_options.get("wrappers", {}).get(kind, {})
    return [wrapper for added in by_key.values() for wrapper in added]
