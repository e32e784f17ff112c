"""Choose number types for models of packs, by what the device computes well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from comfyserverless.host.devices.states import CPU, get_torch_device, is_device_cpu

_AMPERE = 8
_ADA = (8, 9)
_HALVES = (torch.float16, torch.bfloat16)
FLOAT8_TYPES = [torch.float8_e4m3fn, torch.float8_e5m2]


def _capability(device: Any) -> tuple[int, int]:
    target = get_torch_device() if device is None else torch.device(device)
    return torch.cuda.get_device_capability(target) if target.type == "cuda" else (0, 0)


def should_use_fp16(
    device: Any = None, model_params: int = 0, prioritize_performance: bool = True, manual_cast: bool = False
) -> bool:
    """Tell whether a model should compute in float16: on GPUs of the last ten years."""
    return _capability(device)[0] >= 7


def should_use_bf16(
    device: Any = None, model_params: int = 0, prioritize_performance: bool = True, manual_cast: bool = False
) -> bool:
    """Tell whether a model should compute in bfloat16: on GPUs that do so natively."""
    return _capability(device)[0] >= _AMPERE


def supports_fp8_compute(device: Any = None) -> bool:
    """Tell whether a device multiplies 8-bit floats."""
    return _capability(device) >= _ADA


def unet_dtype(
    device: Any = None,
    model_params: int = 0,
    supported_dtypes: Sequence[torch.dtype] = (torch.float16, torch.bfloat16, torch.float32),
    weight_dtype: torch.dtype | None = None,
) -> torch.dtype:
    """Return the type for a diffusion model's weights: the first supported one that the device computes in."""
    if weight_dtype in FLOAT8_TYPES:
        return weight_dtype
    for dtype in supported_dtypes:
        if (dtype == torch.float16 and should_use_fp16(device)) or (
            dtype == torch.bfloat16 and should_use_bf16(device)
        ):
            return dtype
    return torch.float32


def unet_manual_cast(
    weight_dtype: torch.dtype,
    inference_device: Any,
    supported_dtypes: Sequence[torch.dtype] = (torch.float16, torch.bfloat16, torch.float32),
) -> torch.dtype | None:
    """Return the type to compute in if it is not that of the weights, else None."""
    if weight_dtype in (torch.float32, torch.float64):
        return None
    if (weight_dtype == torch.float16 and should_use_fp16(inference_device)) or (
        weight_dtype == torch.bfloat16 and should_use_bf16(inference_device)
    ):
        return None
    return unet_dtype(inference_device, 0, supported_dtypes)


def vae_dtype(device: Any = None, allowed_dtypes: Iterable[torch.dtype] = ()) -> torch.dtype:
    """Return the type for an autoencoder: float32 unless another is allowed that the device computes in."""
    for dtype in allowed_dtypes:
        if (dtype == torch.float16 and should_use_fp16(device)) or (
            dtype == torch.bfloat16 and should_use_bf16(device)
        ):
            return dtype
    return torch.float32


def text_encoder_dtype(device: Any = None) -> torch.dtype:
    """Return the type for a text encoder: half precision, but float32 on the CPU."""
    return torch.float32 if is_device_cpu(CPU if device is None else device) else torch.float16


def supports_dtype(device: Any, dtype: torch.dtype | None) -> bool:
    """Tell whether a device computes in a type."""
    return dtype in (None, torch.float32) or (dtype in _HALVES and not is_device_cpu(device))


def supports_cast(device: Any, dtype: torch.dtype) -> bool:
    """Tell whether a device converts to a type; both that there are do."""
    return dtype in (torch.float32, *_HALVES, *FLOAT8_TYPES)


def pick_weight_dtype(
    dtype: torch.dtype | None, fallback_dtype: torch.dtype, device: Any = None
) -> torch.dtype:
    """Return the type for weights: the wanted one if the device can hold it."""
    wanted = fallback_dtype if dtype is None or dtype.itemsize > fallback_dtype.itemsize else dtype
    return wanted if supports_cast(device, wanted) else fallback_dtype


def dtype_size(dtype: torch.dtype) -> int:
    """Return the bytes of a number of a type."""
    return dtype.itemsize


def cast_to(
    weight: Tensor | None,
    dtype: torch.dtype | None = None,
    device: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    stream: Any = None,
) -> Tensor | None:
    """Return a tensor in a type on a device; itself if it is so already and no copy is wanted."""
    return None if weight is None else weight.to(device, dtype, non_blocking=non_blocking, copy=copy)


def cast_to_device(tensor: Tensor, device: Any, dtype: torch.dtype | None, copy: bool = False) -> Tensor:
    """Return a tensor on a device in a type; itself if it is so already and no copy is wanted."""
    return tensor.to(device, dtype, copy=copy)


def force_upcast_attention_dtype() -> None:
    """Say that attention computes in the type of its inputs."""
    return None


def stochastic_rounding(value: Tensor, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Return a tensor in a type, rounded to nearest: weights that are saved here are not trained on."""
    return value.to(dtype)


def get_supported_float8_types() -> list[torch.dtype]:
    """Return the types of eight bits that this torch has."""
    return list(FLOAT8_TYPES)
