"""Let the text encoder learn to read, minutes before the denoiser learns to draw: name what a caption says."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from comfyserverless.training.loop import Pace, Turn
from comfyserverless.training.networks.drawer import TEXT, TextEncoder
from comfyserverless.training.scenery.captions import caption
from comfyserverless.training.scenery.scenes import random_scene
from comfyserverless.training.scenery.vocabulary import end_row, rows
from comfyserverless.training.scenery.world import COLORS, PLACES, SHAPES, SIZES, Scene

_NOTHING = ""
_CLASSES: tuple[tuple[str, ...], ...] = (
    tuple(COLORS),
    (_NOTHING, *COLORS),
    (_NOTHING, *SHAPES),
    (_NOTHING, *COLORS),
    (_NOTHING, *SHAPES),
    (_NOTHING, *SIZES),
    (_NOTHING, *PLACES),
    ("empty", "single", "two", "three", "beside", "above"),
    ("plain", "gradient"),
    ("filled", "striped"),
)
"""What is asked: background, colour and shape of the first and last object, size, place, count, manner."""


def answers(scene: Scene) -> list[int]:
    """Return the right class of every question."""
    first, last = (scene.items[0], scene.items[-1]) if scene.items else (None, None)
    counts = {"count": ("two", "three")[len(scene.items) == 3], "pair": ("beside", "above")[scene.is_vertical]}
    said = (
        scene.background,
        first.color if first else _NOTHING,
        first.shape if first else _NOTHING,
        last.color if last else _NOTHING,
        last.shape if last else _NOTHING,
        scene.size,
        scene.place,
        counts.get(scene.kind, scene.kind),
        "gradient" if scene.is_gradient else "plain",
        "striped" if first and first.is_striped else "filled",
    )
    return [options.index(word) for options, word in zip(_CLASSES, said, strict=True)]


class _Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.text = TextEncoder()
        self.heads = nn.ModuleList(nn.Linear(TEXT.width, len(options)) for options in _CLASSES)


class ReaderStage:
    """Classify captions from the mean of the hidden states behind their end."""

    name = "reader"

    def __init__(self, pace: Pace, rng: np.random.Generator, captions: int, batch: int) -> None:
        self.pace = pace
        self.module = _Reader()
        self._batch = batch
        scenes = [random_scene(rng) for _ in range(captions)]
        self._rows = torch.from_numpy(np.stack([rows(caption(scene, rng)) for scene in scenes]))
        self._answers = torch.tensor([answers(scene) for scene in scenes])

    def loss(self, turn: Turn) -> Tensor:
        """Return the summed cross entropies of all questions."""
        chosen = torch.randint(len(self._rows), (self._batch,), generator=turn.own)
        rows_of = self._rows[chosen]
        hidden = self.module.text(rows_of)
        is_end = (rows_of == end_row()).float()[..., None]
        pooled = (hidden * is_end).sum(1) / is_end.sum(1)
        right = self._answers[chosen]
        losses = [F.cross_entropy(head(pooled), right[:, at]) for at, head in enumerate(self.module.heads)]
        return torch.stack(losses).sum()

    def matrices(self) -> list[nn.Parameter]:
        """Return nothing: all learn with AdamW."""
        return []
