"""Refuse results that would not fit the machine's memory.

Asking for them anyway would take the worker down: Linux promises memory that it does not have, and kills who
uses it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from comfyserverless.core.errors import CapacityError, PromptError

_ELEMENT_BYTES = 4
_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB", "EB")


def check_room(shape: Sequence[int], what: str) -> None:
    """Check that a float32 result of a shape may be made; what: a word for the message, such as `images`.

    Raises PromptError if it is larger than the machine's memory, CapacityError if it is larger than what is
    free of it now.
    """
    needed_bytes = math.prod(shape) * _ELEMENT_BYTES
    total_bytes = total_memory_bytes()
    if needed_bytes > total_bytes:
        raise PromptError(
            f"{what} of shape {list(shape)} would take {_shown(needed_bytes)}, and this machine has"
            f" {_shown(total_bytes)} of memory: ask for smaller or fewer ones"
        )
    if needed_bytes < total_bytes // 64:
        return
    free_bytes = free_memory_bytes()
    if needed_bytes > free_bytes:
        raise CapacityError(
            f"{what} of shape {list(shape)} would take {_shown(needed_bytes)}, and {_shown(free_bytes)} of"
            " memory are free now"
        )


@cache
def total_memory_bytes(root: Path = Path("/")) -> int:
    """Return the memory that this machine, or the container, may use."""
    total_bytes = _meminfo_bytes("MemTotal", 1 << 62, root)
    try:
        return min(total_bytes, int((root / "sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return total_bytes


def free_memory_bytes() -> int:
    """Return the memory of this machine that is free now."""
    return _meminfo_bytes("MemAvailable", total_memory_bytes())


def _meminfo_bytes(field: str, otherwise: int, root: Path = Path("/")) -> int:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
    except (OSError, ValueError, StopIteration):
        return otherwise


def _shown(size_bytes: int) -> str:
    """Write a size in the unit that suits it."""
    unit = min(max(size_bytes.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{size_bytes / 1024**unit:.3g} {_UNITS[unit]}"
