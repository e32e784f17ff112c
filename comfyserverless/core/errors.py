"""Name every error that crosses a room, by who has to act on it."""

from __future__ import annotations

from typing import ClassVar


class ComfyServerlessError(Exception):
    """Base of all errors that this package raises on purpose.

    shown_as: the exception type that clients know such an error by, empty for its own name.
    """

    shown_as: ClassVar[str] = ""


class PromptError(ComfyServerlessError):
    """The tenant's request is at fault; it maps to a 4xx answer or an execution_error."""


class ModelFileError(PromptError):
    """A model file is missing, truncated, of a foreign layout, or not what the node needs."""


class CapacityError(ComfyServerlessError):
    """The system cannot take this now; the same request may succeed later."""


class NoRoomError(CapacityError):
    """Results in use leave too little of a worker's memory; what is larger than all of it raises its base."""


class WorkerError(ComfyServerlessError):
    """One invocation failed on a worker.

    exception_type: dotted name of the original class; traceback: formatted frames of the worker.
    """

    def __init__(self, message: str, exception_type: str, traceback: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.exception_type = exception_type
        self.traceback = traceback


class InvariantError(ComfyServerlessError):
    """One of our own laws is broken; story holds the recent events of the key concerned."""

    def __init__(self, message: str, story: tuple[str, ...] = ()) -> None:
        super().__init__("\n".join((message, *story)))
        self.story = story


class ConfigError(ComfyServerlessError):
    """A flag, variable or config file holds a bad value; the message names it and what is allowed."""
