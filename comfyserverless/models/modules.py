"""Build modules of the model libraries without allocating their numbers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

# The model libraries must never look for files on a hub; they read this when they are first imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

M = TypeVar("M", bound=nn.Module)


def compute_dtype(device: torch.device) -> torch.dtype:
    """Return the type that diffusion models run in: float32 on CPUs, float16 on accelerators."""
    return torch.float32 if device.type == "cpu" else torch.float16


def empty_module(factory: Callable[[], M]) -> M:
    """Build a module whose parameters have shapes and no memory, for inference."""
    from accelerate import init_empty_weights

    with init_empty_weights(include_buffers=False):
        module = factory()
    return module.eval().requires_grad_(False)
