"""Know what the built-in patches of a handle put in the place of parts of a model."""

from __future__ import annotations

from typing import Any

from comfyserverless.core.values import ModelRef


def patched_object(ref: ModelRef, name: str) -> Any:
    """Return what patches of a handle put in the place of a model's part; None if they leave it."""
    return None
