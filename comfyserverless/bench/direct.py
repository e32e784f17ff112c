"""Make the workload's pictures with a plain loop over the same modules: no graph, no scheduling, no arena.

Run as `python -m comfyserverless.bench.direct CHECKPOINT STEPS SIZE THREADS FOLDER`. Reads one seed a line from
stdin; answers each with one JSON line: wall seconds of the picture and the file it was written to.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from comfyserverless.bench.workload import CFG, NEGATIVE, POSITIVE
from comfyserverless.core.values import ClipRef, FileRef, LoraRef, ModelRef, VaeRef
from comfyserverless.models.pool import ModelPool
from comfyserverless.models.resident.run import ResidentModel

TRAIN_STEPS = 1000


def trained_sigmas() -> Tensor:
    """Return Stable Diffusion's noise levels [1000], ascending (scaled-linear betas 0.00085 to 0.012)."""
    betas = torch.linspace(0.00085**0.5, 0.012**0.5, TRAIN_STEPS, dtype=torch.float64) ** 2
    kept = torch.cumprod(1 - betas, dim=0)
    return ((1 - kept) / kept).sqrt().float()


def walk_levels(levels: Tensor, steps: int) -> Tensor:
    """Return the `normal` schedule: even in training time, from the noisiest level, then 0. [steps + 1]."""
    at = torch.linspace(TRAIN_STEPS - 1, 0, steps)
    low = at.floor().long()
    high = at.ceil().long()
    share = at - low
    log_levels = levels.log()
    return torch.cat([((1 - share) * log_levels[low] + share * log_levels[high]).exp(), torch.zeros(1)])


def file_ref(path: Path) -> FileRef:
    """Name a file with what tells its versions apart."""
    stat = path.stat()
    return FileRef(str(path), stat.st_size, stat.st_mtime_ns)


class Direct:
    """Hold the parts of one checkpoint, and call them in a loop.

    pool: None for one of its own, without limits.
    """

    def __init__(
        self,
        checkpoint: Path,
        steps: int,
        size_px: int,
        pool: ModelPool | None = None,
        loras: tuple[LoraRef, ...] = (),
    ) -> None:
        pool = pool or ModelPool(torch.device("cpu"))
        file = file_ref(checkpoint)
        self._text = pool.text(ClipRef((file,), loras=loras))
        self._facts = pool.facts(ModelRef(file))
        self._network = pool.diffusion(ModelRef(file, loras))
        self._vae = pool.vae(VaeRef(file))
        self._levels = trained_sigmas()
        self._sigmas = walk_levels(self._levels, steps)
        self._cells = size_px // self._facts.downscale_px

    def models(self) -> list[ResidentModel]:
        """List the models that a picture runs, private layers of LoRAs after their base."""
        parts = [model for part in self._text.parts for model in part.models]
        return [*parts, *self._network.models, self._vae.residents[1]]

    @torch.no_grad()
    def picture(self, seed: int) -> Image.Image:
        """Return the picture of a seed."""
        context = torch.cat([self._text.encode(NEGATIVE)[0], self._text.encode(POSITIVE)[0]])
        sigmas = self._sigmas
        shape = (1, self._facts.latent_channels, self._cells, self._cells)
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * (1 + sigmas[0] ** 2).sqrt()
        for sigma, next_sigma in itertools.pairwise(sigmas):
            denoised = self._denoise(x, sigma, context)
            x = x + (x - denoised) / sigma * (next_sigma - sigma)
        images = self._vae.decode(x / self._facts.scale_factor)
        return Image.fromarray((images[0].clamp(0, 1) * 255).to(torch.uint8).numpy())

    def _denoise(self, x: Tensor, sigma: Tensor, context: Tensor) -> Tensor:
        """Return the guided clean latent [1, C, h, w]; context: [2, T, D], negative first."""
        timestep = (self._levels.log() - sigma.log()).abs().argmin().float().expand(2)
        x_in = (x / (sigma**2 + 1).sqrt()).repeat(2, 1, 1, 1)
        negative, positive = (x - sigma * self._network.predict(x_in, timestep, context)).chunk(2)
        return negative + (positive - negative) * CFG


def main() -> None:
    """Answer seeds until stdin ends."""
    checkpoint, steps, size_px, threads, folder = sys.argv[1:]
    torch.set_num_threads(int(threads))
    direct = Direct(Path(checkpoint), int(steps), int(size_px))
    for line in sys.stdin:
        begin_s = time.perf_counter()
        file = os.path.join(folder, f"direct_{int(line)}.png")
        direct.picture(int(line)).save(file, compress_level=4)
        sys.stdout.write(json.dumps({"seconds": time.perf_counter() - begin_s, "file": file}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
