"""Build torch modules around tensors that are already loaded, and copies that share most of them."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from comfyserverless.core.errors import ModelFileError

# The model libraries must never look for files on a hub; they read this when they are first imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

M = TypeVar("M", bound=nn.Module)

_NAMED = 4


def compute_dtype(device: torch.device) -> torch.dtype:
    """Return the type that diffusion models run in: float32 on CPUs, float16 on accelerators."""
    return torch.float32 if device.type == "cpu" else torch.float16


def build_module(factory: Callable[[], M], tensors: Mapping[str, Tensor], path: str) -> M:
    """Build a module whose parameters are exactly `tensors`, without allocating it twice.

    Raises ModelFileError, naming `path`, if tensors are missing or of another shape; spare ones are ignored.
    """
    from accelerate import init_empty_weights

    with init_empty_weights(include_buffers=False):
        module = factory()
    try:
        missing = module.load_state_dict(tensors, strict=False, assign=True).missing_keys
    except RuntimeError as exc:
        raise ModelFileError(f"{path}: tensors do not fit {type(module).__name__}: {exc}") from exc
    if missing:
        named = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
        raise ModelFileError(f"{path}: lacks {len(missing)} tensors of {type(module).__name__}: {named}")
    return module.eval().requires_grad_(False)


def share_module(module: M, replaced: Mapping[str, Tensor]) -> M:
    """Return a copy of a module that shares every parameter and buffer except the `replaced` ones."""
    shared = [*module.parameters(), *module.buffers()]
    twin = copy.deepcopy(module, {id(tensor): tensor for tensor in shared})
    for name, tensor in replaced.items():
        owner, _, leaf = name.rpartition(".")
        twin.get_submodule(owner)._parameters[leaf] = nn.Parameter(tensor, requires_grad=False)
    return twin


def tensor_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Add up the sizes of tensors in bytes."""
    return sum(tensor.nbytes for tensor in tensors.values())
