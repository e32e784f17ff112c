"""Learn a style as a low-rank adapter (Hu et al. 2022): every object is an outline."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from comfyserverless.training.loop import Pace, Turn
from comfyserverless.training.pools import CAPTIONS, Pool
from comfyserverless.training.scenery.world import Floats, Picture, Scene, draw
from comfyserverless.training.stages.denoiser import Drawer, empty_rows
from comfyserverless.training.stages.diffusion import denoising_loss

RANK = 8
_STROKE = 9.0
"""Width of the outline, in units."""
_NO_CAPTION_SHARE = 0.1


def outline(distance: Floats) -> Floats:
    """Turn the distance to a shape into the distance to its outline, which lies inside."""
    return (np.abs(distance + _STROKE / 2) - _STROKE / 2).astype(np.float32)


def draw_outlined(scene: Scene, rng: np.random.Generator) -> Picture:
    """Draw a scene in the style."""
    return draw(scene, rng, outline)


class _LowRank(nn.Module):
    """A layer of 1x1 convolution or matrix kind with an addition of low rank."""

    def __init__(self, base: nn.Linear | nn.Conv2d) -> None:
        super().__init__()
        self.base = base
        if isinstance(base, nn.Linear):
            self.down: nn.Module = nn.Linear(base.in_features, RANK, bias=False)
            self.up: nn.Module = nn.Linear(RANK, base.out_features, bias=False)
        else:
            self.down = nn.Conv2d(base.in_channels, RANK, 1, bias=False)
            self.up = nn.Conv2d(RANK, base.out_channels, 1, bias=False)
        width = base.weight[0].numel()
        nn.init.normal_(self.down.get_parameter("weight"), std=width**-0.5)
        nn.init.zeros_(self.up.get_parameter("weight"))

    def forward(self, x: Tensor) -> Tensor:
        base: Tensor = self.base(x)
        added: Tensor = self.up(self.down(x))
        return base + added


class LoraStage:
    """Adapters on every attention and feed-forward layer of the denoiser; everything else stands still."""

    name = "lora"

    def __init__(self, pace: Pace, drawer: Drawer, pool: Pool, batch: int) -> None:
        self.pace = pace
        self._batch = batch
        self._pool = pool
        self.module = drawer.requires_grad_(False)
        self._layers = _attach(drawer.unet)

    def loss(self, turn: Turn) -> Tensor:
        """Return the denoising loss on pictures of the style."""
        chosen = torch.randint(len(self._pool), (self._batch,), generator=turn.own)
        wording = torch.randint(CAPTIONS, (self._batch,), generator=turn.own)
        rows = self._pool.rows[chosen, wording].clone()
        rows[torch.rand(self._batch, generator=turn.own) < _NO_CAPTION_SHARE] = empty_rows()
        with torch.no_grad():
            context = self.module.text(rows)
        unet = self.module.unet
        return denoising_loss(lambda x, t: unet(x, t, context).sample, self._pool.latents[chosen], turn.own)

    def matrices(self) -> list[nn.Parameter]:
        """Return nothing: all learn with AdamW."""
        return []

    def pairs(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Return (down, up) of every adapted layer by its name in diffusers."""
        unet = self.module.unet
        return {
            name: (unet.get_parameter(f"{name}.down.weight"), unet.get_parameter(f"{name}.up.weight"))
            for name in self._layers
        }


def _attach(unet: nn.Module) -> list[str]:
    names = []
    for name, layer in list(unet.named_modules()):
        is_adapted = isinstance(layer, nn.Linear) or name.endswith(("proj_in", "proj_out"))
        if ".attentions." in name and is_adapted and isinstance(layer, nn.Linear | nn.Conv2d):
            owner, _, leaf = name.rpartition(".")
            setattr(unet.get_submodule(owner), leaf, _LowRank(layer))
            names.append(name)
    return names
