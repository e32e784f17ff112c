"""Compare numbers with those that ComfyUI gave: bit by bit where the kernels are those of the recording."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

RECORDED_CAPABILITY = "AVX2"


def has_recorded_kernels() -> bool:
    """Tell whether torch computes here as where ComfyUI's results were recorded."""
    return torch.backends.cpu.get_cpu_capability() == RECORDED_CAPABILITY


def equals_recorded(got: Tensor, wanted: Tensor) -> bool:
    """Tell whether numbers are the recorded ones; kernels of another CPU may round the last bits otherwise."""
    if has_recorded_kernels():
        return torch.equal(got, wanted)
    is_alike = got.shape == wanted.shape and got.dtype == wanted.dtype
    return is_alike and torch.allclose(got, wanted, rtol=1e-5, atol=1e-5)


def equals_recorded_pixels(got: NDArray[np.uint8], wanted: NDArray[np.uint8]) -> bool:
    """Tell whether bytes of a picture are the recorded ones; on another CPU one may be the next number."""
    most = 0 if has_recorded_kernels() else 1
    return got.shape == wanted.shape and int(np.abs(got.astype(int) - wanted.astype(int)).max()) <= most
