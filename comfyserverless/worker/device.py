"""Find the device of a worker and measure memory."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import torch

from comfyserverless.core.messages import DeviceInfo

log = logging.getLogger(__name__)

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# What is left to activations, the arena and the rest of the process.
_CUDA_WEIGHTS_RATIO = 0.8
_CPU_WEIGHTS_RATIO = 0.5


def choose_device(kind: str, index: int | None) -> torch.device:
    """Return the device to compute on. kind: `auto`, `cpu` or `cuda`; index: None for no CUDA device.

    Falls back to the CPU, with a warning, where the installed torch cannot use the device.
    """
    if kind == "cpu" or (kind == "auto" and index is None):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        log.warning("device cuda:%s cannot be used by this torch (%s); using the CPU", index, torch.__version__)
        return torch.device("cpu")
    return torch.device("cuda", index or 0)


def describe_device(device: torch.device) -> DeviceInfo:
    """Return name and memory as `/system_stats` shows them."""
    if device.type == "cuda":
        free_bytes, total_bytes = torch.cuda.mem_get_info(device)
        name = f"{device} {torch.cuda.get_device_name(device)}"
        return DeviceInfo(name, "cuda", device.index, total_bytes, free_bytes)
    return DeviceInfo("cpu", "cpu", None, _meminfo_bytes("MemTotal"), _meminfo_bytes("MemAvailable"))


def free_bytes(device: torch.device) -> int:
    """Return the bytes of device memory that are free now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return _meminfo_bytes("MemAvailable")


def resident_bytes() -> int:
    """Return the resident set of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def default_weights_bytes(device: torch.device) -> int:
    """Return a budget for cached weights: a share of the device's memory."""
    ratio = _CUDA_WEIGHTS_RATIO if device.type == "cuda" else _CPU_WEIGHTS_RATIO
    return int(describe_device(device).total_bytes * ratio)


def _meminfo_bytes(field: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0]) * 1024
    raise LookupError(f"/proc/meminfo has no {field}")
