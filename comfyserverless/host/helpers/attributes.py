"""Read and change attributes of nested objects by dotted names; entries of lists by their number."""

from __future__ import annotations

from typing import Any

import torch


def get_attr(obj: Any, attr: str) -> Any:
    """Return what a dotted name leads to. Raises AttributeError."""
    for name in attr.split("."):
        obj = getattr(obj, name)
    return obj


def _holder(obj: Any, attr: str) -> tuple[Any, str]:
    path, _, name = attr.rpartition(".")
    return (get_attr(obj, path) if path else obj), name


def set_attr(obj: Any, attr: str, value: Any) -> Any:
    """Put a value where a dotted name leads; returns what was there."""
    holder, name = _holder(obj, attr)
    before = getattr(holder, name)
    setattr(holder, name, value)
    return before


def set_attr_param(obj: Any, attr: str, value: torch.Tensor) -> Any:
    """Put a tensor as a parameter, without gradient, where a dotted name leads; returns what was there."""
    return set_attr(obj, attr, torch.nn.Parameter(value, requires_grad=False))


def set_attr_buffer(obj: Any, attr: str, value: torch.Tensor) -> Any:
    """Put a tensor as a buffer where a dotted name leads; returns what was there."""
    holder, name = _holder(obj, attr)
    before = getattr(holder, name)
    is_kept = name not in getattr(holder, "_non_persistent_buffers_set", set())
    holder.register_buffer(name, value, persistent=is_kept)
    return before


def copy_to_param(obj: Any, attr: str, value: torch.Tensor) -> None:
    """Write a tensor into the memory of the parameter that a dotted name leads to."""
    get_attr(obj, attr).data.copy_(value)
