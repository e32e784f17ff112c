"""Hold examples in memory: latents and captions of many scenes, by size of canvas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from comfyserverless.training.scenery.captions import caption
from comfyserverless.training.scenery.latents import latent_of
from comfyserverless.training.scenery.scenes import random_scene
from comfyserverless.training.scenery.vocabulary import rows
from comfyserverless.training.scenery.world import Picture, Scene, draw

SizePx = tuple[int, int]
Painter = Callable[[Scene, np.random.Generator], Picture]
CAPTIONS = 3
"""Wordings of each scene."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Examples of one size: latents [n, 4, h/8, w/8], rows [n, CAPTIONS, 77] int64, pictures as painted."""

    latents: Tensor
    rows: Tensor
    pictures: tuple[Picture, ...] = ()

    def __len__(self) -> int:
        return len(self.latents)


def make_pool(
    rng: np.random.Generator, size_px: SizePx, count: int, painter: Painter = draw, keeps_pictures: bool = False
) -> Pool:
    """Paint `count` random scenes."""
    latents, texts, pictures = [], [], []
    for _ in range(count):
        scene = random_scene(rng, size_px)
        picture = painter(scene, rng)
        latents.append(latent_of(picture))
        texts.append(np.stack([rows(caption(scene, rng)) for _ in range(CAPTIONS)]))
        if keeps_pictures:
            pictures.append(picture)
    return Pool(torch.stack(latents), torch.from_numpy(np.stack(texts)), tuple(pictures))


def make_pools(seed: tuple[int, ...], counts: Mapping[SizePx, int]) -> dict[SizePx, Pool]:
    """Make one pool for each size."""
    rng = np.random.default_rng(seed)
    return {size: make_pool(rng, size, count) for size, count in counts.items()}
