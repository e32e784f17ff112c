"""Learn a ControlNet (Zhang et al. 2023) that draws along given edges."""

from __future__ import annotations

import numpy as np
import torch
from diffusers import ControlNetModel
from numpy.typing import NDArray
from torch import Tensor, nn

from comfyserverless.functions.edges import ImageCanny
from comfyserverless.training.loop import Pace, Turn
from comfyserverless.training.pools import CAPTIONS, Pool, SizePx
from comfyserverless.training.scenery.world import Picture
from comfyserverless.training.stages.denoiser import Drawer, empty_rows
from comfyserverless.training.stages.diffusion import denoising_loss

_EDGE_STEP = 14
"""Neighbouring pixels differ by more than this, in one colour, where an edge is."""
_NO_CAPTION_SHARE = 0.3
"""Captions that are left out: then only the edges tell what to draw."""
_CELLS = 256
_THIN_SHARE = 0.6
"""Hints as the product's Canny node draws them, instead of the thicker lines of `edge_map`."""
_THRESHOLDS = (0.1, 0.3)
_LEAST_THIN = 0.4
"""Pixels of complete thin lines for each pixel of the thicker ones."""
_GOLDEN = 0.618034
"""Multiples of it modulo 1 spread evenly."""
_APART = ("conv_in", "controlnet_down_blocks", "controlnet_mid_block", "controlnet_cond_embedding.conv_out")


def edge_map(picture: Picture) -> NDArray[np.uint8]:
    """Return white lines on black [h, w], about two pixels wide, where colours change."""
    wide = picture.astype(np.int16)
    steps = np.zeros(picture.shape[:2], np.int16)
    steps[:, 1:] = np.abs(np.diff(wide, axis=1)).max(-1)
    steps[1:] = np.maximum(steps[1:], np.abs(np.diff(wide, axis=0)).max(-1))
    return np.where(steps > _EDGE_STEP, 255, 0).astype(np.uint8)


def thin_edge_map(picture: Picture) -> NDArray[np.uint8]:
    """Return the lines [h, w], white on black, that Canny's method finds."""
    low, high = _THRESHOLDS
    images = torch.from_numpy(picture)[None].float() / 255
    edges = ImageCanny().execute({}, images=images, low_threshold=low, high_threshold=high)["images"]
    return (edges[0, ..., 0] * 255).to(torch.uint8).numpy()


def _hint_of(picture: Picture, at: int) -> Tensor:
    """Return one of the two kinds of lines, a share of each by number.

    Canny's method sees brightness only; where that misses much, the thicker lines are taken.
    """
    thick = edge_map(picture)
    if (at * _GOLDEN) % 1 >= _THIN_SHARE:
        return torch.from_numpy(thick)
    thin = thin_edge_map(picture)
    is_complete = np.count_nonzero(thin) > _LEAST_THIN * np.count_nonzero(thick)
    return torch.from_numpy(thin if is_complete else thick)


class ControlStage:
    """The ControlNet learns; denoiser and text encoder stand still. The pools keep their pictures."""

    name = "control"

    def __init__(self, pace: Pace, drawer: Drawer, pools: dict[SizePx, Pool], batch: int) -> None:
        self.pace = pace
        self.module = ControlNetModel.from_unet(drawer.unet).requires_grad_(True)
        self._drawer = drawer.requires_grad_(False)
        self._pools = pools
        self._hints = {
            size: torch.stack([_hint_of(picture, at) for at, picture in enumerate(pool.pictures)])
            for size, pool in pools.items()
        }
        self._batch = batch

    def matrices(self) -> list[nn.Parameter]:
        """Return the weights but those of the first layer and of the outputs, which begin at zero."""
        return [
            parameter
            for name, parameter in self.module.named_parameters()
            if parameter.ndim >= 2 and not name.startswith(_APART)
        ]

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
