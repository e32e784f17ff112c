"""Lay latents down by hand: mean colour and spread of each 8x8 block, whitened.

An autoencoder is then trained to compute this (encoder) and to draw the sharp picture from it (decoder), so
that autoencoder and denoiser can learn at the same time, and the denoiser sees small pictures, which are easy
to learn.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from comfyserverless.training.scenery.scenes import random_scene
from comfyserverless.training.scenery.world import Picture, draw

CELL_PX = 8
CHANNELS = 4
_WHITENING_SEED = 11
_WHITENING_PICTURES = 1500

Doubles = NDArray[np.float64]


def _block_statistics(picture: Picture) -> NDArray[np.float32]:
    """Return [4, h/8, w/8]: mean red, green, blue in -1..1, and the root of the summed variances."""
    height, width, _ = picture.shape
    blocks = picture.astype(np.float32).reshape(height // CELL_PX, CELL_PX, width // CELL_PX, CELL_PX, 3)
    blocks = blocks / 127.5 - 1
    mean = blocks.mean((1, 3))
    variance = np.maximum((blocks * blocks).mean((1, 3)) - mean**2, 0).sum(-1, keepdims=True)
    return np.concatenate([mean, np.sqrt(variance + 1e-5)], -1).transpose(2, 0, 1)


@lru_cache(maxsize=1)
def _whitening() -> tuple[Doubles, Doubles]:
    """Return the matrix [4, 4] and the mean [4] that give the statistics zero mean and unit covariance."""
    rng = np.random.default_rng(_WHITENING_SEED)
    pictures = (draw(random_scene(rng), rng) for _ in range(_WHITENING_PICTURES))
    seen = np.concatenate([_block_statistics(picture).reshape(CHANNELS, -1) for picture in pictures], 1)
    seen = seen.astype(np.float64)
    values, vectors = np.linalg.eigh(np.cov(seen[:3]))
    matrix = np.zeros((CHANNELS, CHANNELS))
    matrix[:3, :3] = vectors @ np.diag(values**-0.5) @ vectors.T
    matrix[3, 3] = 1 / seen[3].std()
    return matrix, seen.mean(1)


def latent_of(picture: Picture) -> Tensor:
    """Return the latent [4, h/8, w/8] float32 of a picture whose sides are multiples of 8."""
    matrix, mean = _whitening()
    statistics = _block_statistics(picture) - mean[:, None, None]
    return torch.from_numpy(np.einsum("ij,jyx->iyx", matrix, statistics).astype(np.float32))


def pixels_of(picture: Picture) -> Tensor:
    """Return a picture as [3, h, w] float32 in -1..1."""
    return torch.from_numpy(np.ascontiguousarray(picture)).permute(2, 0, 1).float().div(127.5).sub(1)
