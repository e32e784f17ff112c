"""Learn a ControlNet (Zhang et al. 2023) that draws along given edges."""

from __future__ import annotations

import numpy as np
import torch
from diffusers import ControlNetModel
from numpy.typing import NDArray
from torch import Tensor, nn

from comfyserverless.training.diffusion import denoising_loss
from comfyserverless.training.loop import Pace, Turn
from comfyserverless.training.pools import CAPTIONS, Pool, SizePx
from comfyserverless.training.stage_denoiser import Drawer, empty_rows
from comfyserverless.training.world import Picture

_EDGE_STEP = 14
"""Neighbouring pixels differ by more than this, in one colour, where an edge is."""
_NO_CAPTION_SHARE = 0.3
"""Captions that are left out: then only the edges tell what to draw."""
_CELLS = 256


def edge_map(picture: Picture) -> NDArray[np.uint8]:
    """Return white lines on black [h, w], about two pixels wide, where colours change."""
    wide = picture.astype(np.int16)
    steps = np.zeros(picture.shape[:2], np.int16)
    steps[:, 1:] = np.abs(np.diff(wide, axis=1)).max(-1)
    steps[1:] = np.maximum(steps[1:], np.abs(np.diff(wide, axis=0)).max(-1))
    return np.where(steps > _EDGE_STEP, 255, 0).astype(np.uint8)


class ControlStage:
    """The ControlNet learns; denoiser and text encoder stand still. The pools keep their pictures."""

    name = "control"

    def __init__(self, pace: Pace, drawer: Drawer, pools: dict[SizePx, Pool], batch: int) -> None:
        self.pace = pace
        self.module = ControlNetModel.from_unet(drawer.unet).requires_grad_(True)
        self._drawer = drawer.requires_grad_(False)
        self._pools = pools
        self._hints = {
            size: torch.from_numpy(np.stack([edge_map(picture) for picture in pool.pictures]))
            for size, pool in pools.items()
        }
        self._batch = batch

    def matrices(self) -> list[nn.Parameter]:
        """Return nothing: all learn with AdamW."""
        return []

    def loss(self, turn: Turn) -> Tensor:
        """Return the denoising loss with the edges of the clean picture as hint."""
        sizes = list(self._pools)
        size = sizes[int(turn.shared.integers(len(sizes)))] if turn.shared.random() < 0.4 else sizes[0]
        pool = self._pools[size]
        count = max(1, round(self._batch * _CELLS / pool.latents[0, 0].numel()))
        chosen = torch.randint(len(pool), (count,), generator=turn.own)
        wording = torch.randint(CAPTIONS, (count,), generator=turn.own)
        rows = pool.rows[chosen, wording].clone()
        rows[torch.rand(count, generator=turn.own) < _NO_CAPTION_SHARE] = empty_rows()
        with torch.no_grad():
            context = self._drawer.text(rows)
        hint = self._hints[size][chosen][:, None].float().div(255).expand(-1, 3, -1, -1)

        def denoise(x: Tensor, t: Tensor) -> Tensor:
            down, middle = self.module(x, t, context, controlnet_cond=hint, return_dict=False)
            predicted: Tensor = self._drawer.unet(
                x, t, context, down_block_additional_residuals=down, mid_block_additional_residual=middle
            ).sample
            return predicted

        return denoising_loss(denoise, pool.latents[chosen], turn.own)
