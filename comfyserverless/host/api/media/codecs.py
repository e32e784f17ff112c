"""Get PyAV, which reads and writes films and compressed sounds; it is not part of the installation."""

from __future__ import annotations

import importlib
from typing import Any


def require_av(purpose: str) -> Any:
    """Return the module `av`. Raises RuntimeError that says how to get it, and what for."""
    try:
        return importlib.import_module("av")
    except ImportError as exc:
        raise RuntimeError(f"{purpose} needs PyAV, which is not installed: pip install av") from exc


def find_av() -> Any | None:
    """Return the module `av`, None if it is not installed."""
    try:
        return importlib.import_module("av")
    except ImportError:
        return None
