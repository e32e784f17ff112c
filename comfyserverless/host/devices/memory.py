"""Measure and free the memory of this process's device."""

from __future__ import annotations

import gc
from typing import Any

import torch

from comfyserverless.functions.limits.room import free_memory_bytes, total_memory_bytes
from comfyserverless.host.devices.states import get_torch_device

_MIB = 1 << 20
_INFERENCE_BYTES = 819 * _MIB
_RESERVED_BYTES = 400 * _MIB


def _device(dev: Any) -> torch.device:
    return get_torch_device() if dev is None else torch.device(dev)


def get_free_memory(dev: Any = None, torch_free_too: bool = False) -> Any:
    """Return the free bytes of a device; with `torch_free_too` a pair: those that torch holds unused, too."""
    device = _device(dev)
    if device.type != "cuda":
        free_bytes = free_memory_bytes()
        return (free_bytes, free_bytes) if torch_free_too else free_bytes
    stats = torch.cuda.memory_stats(device)
    held_bytes = stats.get("reserved_bytes.all.current", 0) - stats.get("active_bytes.all.current", 0)
    free_bytes = torch.cuda.mem_get_info(device)[0] + held_bytes
    return (free_bytes, held_bytes) if torch_free_too else free_bytes


def get_total_memory(dev: Any = None, torch_total_too: bool = False) -> Any:
    """Return the bytes of a device; with `torch_total_too` a pair: those that torch has taken of it, too."""
    device = _device(dev)
    if device.type != "cuda":
        total_bytes = total_memory_bytes()
        return (total_bytes, total_bytes) if torch_total_too else total_bytes
    total_bytes = torch.cuda.mem_get_info(device)[1]
    taken_bytes = torch.cuda.memory_stats(device).get("reserved_bytes.all.current", 0)
    return (total_bytes, taken_bytes) if torch_total_too else total_bytes


def soft_empty_cache(force: bool = False) -> None:
    """Give back what torch holds unused on the device."""
    if get_torch_device().type == "cuda":
        torch.cuda.empty_cache()


def collect_garbage() -> None:
    """Free what nobody refers to any more."""
    gc.collect()
    soft_empty_cache()


def minimum_inference_memory() -> int:
    """Return the bytes that computing takes at least."""
    return _INFERENCE_BYTES + _RESERVED_BYTES


def extra_reserved_memory() -> int:
    """Return the bytes that are left to others."""
    return _RESERVED_BYTES


def maximum_vram_for_weights(device: Any = None) -> float:
    """Return the bytes that weights may take on a device."""
    return float(get_total_memory(device)) * 0.88 - minimum_inference_memory()


def module_size(module: Any) -> int:
    """Return the bytes of a module's parameters and buffers."""
    return sum(tensor.nelement() * tensor.element_size() for tensor in module.state_dict().values())


def debug_memory_summary() -> str:
    """Return torch's account of the device, empty without one."""
    return str(torch.cuda.memory_summary()) if get_torch_device().type == "cuda" else ""
