"""Say what device this process computes on, and where models of packs wait.

It is the device of the node host: models of the server's own nodes are on the workers, whatever is asked here.
"""

from __future__ import annotations

import platform
from enum import Enum
from typing import Any

import torch

from comfyserverless.host.settings import settings


class VRAMState(Enum):
    """How much of models stays on the device."""

    DISABLED = 0
    NO_VRAM = 1
    LOW_VRAM = 2
    NORMAL_VRAM = 3
    HIGH_VRAM = 4
    SHARED = 5


class CPUState(Enum):
    """What computes."""

    GPU = 0
    CPU = 1
    MPS = 2


CPU = torch.device("cpu")


def has_gpu() -> bool:
    """Tell whether this process may use a GPU."""
    return not settings().flags.get("cpu", False) and torch.cuda.is_available()


def cpu_state() -> CPUState:
    """Return what computes."""
    return CPUState.GPU if has_gpu() else CPUState.CPU


def vram_state() -> VRAMState:
    """Return how much of models stays on the device; without one there is nothing to say."""
    return VRAMState.NORMAL_VRAM if has_gpu() else VRAMState.DISABLED


def get_torch_device() -> torch.device:
    """Return the device that computes."""
    return torch.device("cuda", torch.cuda.current_device()) if has_gpu() else CPU


def get_torch_device_name(device: Any) -> str:
    """Return a device's name for people."""
    device = torch.device(device)
    if device.type != "cuda":
        return str(device.type)
    return f"{device} {torch.cuda.get_device_name(device)}"


def offload_device() -> torch.device:
    """Return where weights wait: host memory."""
    return CPU


def text_encoder_device() -> torch.device:
    """Return where text encoders of packs compute."""
    return get_torch_device()


def unet_inital_load_device(parameters: int, dtype: torch.dtype) -> torch.device:  # its name in ComfyUI
    """Return where weights are put when they are read."""
    return CPU


def text_encoder_initial_device(load_device: Any, offload_device: Any, model_size: int = 0) -> torch.device:
    """Return where the weights of a text encoder are put when they are read."""
    return torch.device(offload_device)


def is_device_type(device: Any, type: str) -> bool:
    """Tell whether a device, or its name, is of a type."""
    found: str | None = getattr(device, "type", None) or (str(device).partition(":")[0] if device else None)
    return found == type


def is_device_cpu(device: Any) -> bool:
    """Tell whether a device is the CPU."""
    return is_device_type(device, "cpu")


def is_device_mps(device: Any) -> bool:
    """Tell whether a device is Apple's GPU."""
    return is_device_type(device, "mps")


def is_device_cuda(device: Any) -> bool:
    """Tell whether a device is a CUDA GPU."""
    return is_device_type(device, "cuda")


def is_device_xpu(device: Any) -> bool:
    """Tell whether a device is Intel's GPU."""
    return is_device_type(device, "xpu")


def get_autocast_device(device: Any) -> str:
    """Return the type of a device as torch.autocast takes it."""
    return str(getattr(device, "type", "cuda" if has_gpu() else "cpu"))


def cpu_mode() -> bool:
    """Tell whether the CPU computes."""
    return not has_gpu()


def is_nvidia() -> bool:
    """Tell whether an NVIDIA GPU computes."""
    return has_gpu() and bool(torch.version.cuda)


def is_amd() -> bool:
    """Tell whether an AMD GPU computes."""
    return has_gpu() and bool(getattr(torch.version, "hip", None))


def never(*args: Any, **kwargs: Any) -> bool:
    """Say no: of things that this server never has (xformers, MPS, XPU, DirectML, other attention kernels)."""
    return False


def pytorch_attention_enabled() -> bool:
    """Say yes: attention is torch's own."""
    return True


def nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing, and return nothing: about streams that copy weights, which are the workers' matter."""


def is_wsl() -> bool:
    """Tell whether this Linux runs within Windows."""
    return "microsoft" in platform.uname().release.lower()
