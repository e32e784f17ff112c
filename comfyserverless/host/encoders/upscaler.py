"""Stand for an UPSCALE_MODEL: a network that makes pictures larger, run on the workers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from comfyserverless.core.values import UpscaleRef
from comfyserverless.host.library.calls import run_node


class UpscaleModel:
    """An upscaler of a file; it can be called like the network itself."""

    input_channels = output_channels = 3
    device = torch.device("cpu")
    dtype = torch.float32
    supports_half = supports_bfloat16 = False
    tiling = None

    def __init__(self, ref: UpscaleRef) -> None:
        self.ref = ref
        self._scale: int | None = None

    @classmethod
    def of(cls, ref: UpscaleRef) -> UpscaleModel:
        """Return the object for a handle."""
        return cls(ref)

    def to_ref(self) -> UpscaleRef:
        """Return the handle."""
        return self.ref

    @property
    def model(self) -> UpscaleModel:
        """Return what runs: itself."""
        return self

    @property
    def scale(self) -> int:
        """Return how much larger pictures become; tried once with a small one."""
        if self._scale is None:
            side = 16
            self._scale = self._run(torch.zeros(1, side, side, 3)).shape[1] // side
        return self._scale

    def __call__(self, image: Tensor) -> Tensor:
        """Make pictures [B, 3, H, W] larger."""
        return self._run(image.movedim(1, -1)).movedim(-1, 1)

    def _run(self, image: Tensor) -> Tensor:
        larger: Tensor = run_node("ImageUpscaleWithModel", upscale_model=self, image=image)[0]
        return larger

    def to(self, *args: Any, **kwargs: Any) -> UpscaleModel:
        """Return itself: it stays where it is."""
        return self

    cpu = cuda = eval = half = float = to
