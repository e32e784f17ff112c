"""Translate between torch dtypes and their names on the wire."""

from __future__ import annotations

from functools import cache

import torch


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """Return torch's name without the module: `float32`, `bfloat16`, `bool`, ..."""
    return str(dtype).removeprefix("torch.")


@cache
def dtype_of(name: str) -> torch.dtype:
    """Return the dtype of a name. Raises ValueError for a name that torch does not know."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"unknown dtype {name!r}")
    return dtype
