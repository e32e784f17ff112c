"""Learn a new word (textual inversion, Gal et al. 2023): a few vectors that stand for a kind of picture."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from comfyserverless.models.text.clip import embed_tokens
from comfyserverless.training.loop import Pace, Turn
from comfyserverless.training.networks.drawer import TEXT, TOKEN_TABLE
from comfyserverless.training.scenery.latents import latent_of
from comfyserverless.training.scenery.world import SHORT_SIDE, SIZES, Item, Scene, draw
from comfyserverless.training.stages.denoiser import Drawer, empty_rows
from comfyserverless.training.stages.diffusion import denoising_loss

WORD = "night_star"
"""A large yellow star on a black background."""
VECTORS = 3
_SPREAD = 0.1


class _Vectors(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(VECTORS, TEXT.width) * _SPREAD)


class WordStage:
    """Only the vectors learn, from pictures of what they shall mean."""

    name = "word"

    def __init__(self, pace: Pace, drawer: Drawer, rng: np.random.Generator, pictures: int, batch: int) -> None:
        self.pace = pace
        self.module = _Vectors()
        self._drawer = drawer.requires_grad_(False)
        self._batch = batch
        self._latents = torch.stack([latent_of(draw(_night_star(rng), rng)) for _ in range(pictures)])
        table = {TOKEN_TABLE: drawer.text.tensors()[TOKEN_TABLE]}
        self._empty = embed_tokens(table, empty_rows()[None])

    def loss(self, turn: Turn) -> Tensor:
        """Return the denoising loss with the vectors as the whole caption."""
        chosen = torch.randint(len(self._latents), (self._batch,), generator=turn.own)
        empty = self._empty
        embeds = torch.cat([empty[:, :1], self.module.vectors[None], empty[:, 1 + VECTORS :]], 1)
        context = self._drawer.text.read_embedded(embeds).expand(self._batch, -1, -1)
        unet = self._drawer.unet
        return denoising_loss(lambda x, t: unet(x, t, context).sample, self._latents[chosen], turn.own)

    def matrices(self) -> list[nn.Parameter]:
        """Return nothing: all learn with AdamW."""
        return []


def _night_star(rng: np.random.Generator) -> Scene:
    middle = SHORT_SIDE / 2
    x, y = rng.uniform(middle - 3, middle + 3, 2)
    star = Item("star", "yellow", x, y, rng.uniform(*SIZES["large"]))
    return Scene("single", "black", (star,), (128, 128), size="large")
