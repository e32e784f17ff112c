"""Describe an exception for the wire, as ComfyUI's clients expect it in `execution_error`."""

from __future__ import annotations

import traceback
from types import TracebackType

import torch

from comfyserverless.core.errors import WorkerError

OUT_OF_MEMORY = "torch.OutOfMemoryError"
_CPU_ALLOCATOR_WORDS = ("DefaultCPUAllocator", "you tried to allocate")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception means that host or device memory ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _CPU_ALLOCATOR_WORDS)


def type_name(error: BaseException) -> str:
    """Return the dotted name of an exception's class, bare for built-ins; one name for all lack of memory."""
    if isinstance(error, WorkerError):
        return error.exception_type
    if is_out_of_memory(error):
        return OUT_OF_MEMORY
    cls = type(error)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def format_frames(error: BaseException, skipped_file: str) -> tuple[str, ...]:
    """Return the formatted frames of an exception, without the leading ones in `skipped_file`.

    Those that a WorkerError brings follow its own.
    """
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == skipped_file:
        frames = frames.tb_next
    brought = error.traceback if isinstance(error, WorkerError) else ()
    return (*traceback.format_tb(frames), *brought)
