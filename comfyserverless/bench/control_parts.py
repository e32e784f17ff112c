"""Measure the parts of a denoising step with a ControlNet, alone in a process: what the bound is computed from.

Run as `python -m comfyserverless.bench.control_parts CHECKPOINT CONTROLNET SIZE THREADS`. Each line on stdin
asks for one measurement, and is answered by one JSON line (`bench.controlnet.StepParts`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from comfyserverless.bench.direct import file_ref
from comfyserverless.core.values import ControlNetRef, ModelRef
from comfyserverless.models.families.base import ModelFacts
from comfyserverless.models.pool import ModelPool

_TOKENS = 77
_ENTRIES = 2
"""Positive and negative go through the networks together."""


@dataclass(frozen=True, slots=True)
class Example:
    """Inputs of one call of a diffusion model, of so many entries; adm: None if the model takes none."""

    x_in: Tensor
    timesteps: Tensor
    context: Tensor
    adm: Tensor | None

    @classmethod
    def of(cls, facts: ModelFacts, size_px: int, entries: int) -> Example:
        """Draw inputs for a picture of size_px x size_px, the same ones every time."""
        random, cells = torch.Generator().manual_seed(0), size_px // facts.downscale_px
        return cls(
            torch.randn((entries, facts.latent_channels, cells, cells), generator=random),
            torch.full((entries,), 500.0),
            torch.randn((entries, _TOKENS, facts.context_width), generator=random),
            None if facts.adm_width is None else torch.randn((entries, facts.adm_width), generator=random),
        )


class _Watched(Sequence[Tensor]):
    """Residuals that note when the first of them is read."""

    def __init__(self, residuals: Sequence[Tensor]) -> None:
        self._residuals = residuals
        self.read_at_s: float | None = None

    def __len__(self) -> int:
        return len(self._residuals)

    def __getitem__(self, index: Any) -> Any:
        if self.read_at_s is None:
            self.read_at_s = time.perf_counter()
        return self._residuals[index]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[at] for at in range(len(self)))


class Parts:
    """The two networks and inputs of the size that the workload has."""

    def __init__(self, checkpoint: Path, control_net: Path, size_px: int) -> None:
        pool = ModelPool(torch.device("cpu"))
        model = ModelRef(file_ref(checkpoint))
        self._network = pool.diffusion(model)
        self._control_net = pool.controlnet(ControlNetRef(file_ref(control_net)))
        self._example = Example.of(pool.facts(model), size_px, _ENTRIES)
        self._hint = torch.zeros((1, 3, size_px, size_px))

    @torch.inference_mode()
    def measure(self) -> dict[str, float]:
        """Run the ControlNet, then the network with what it made; returns the seconds of each part."""
        example = self._example
        inputs = (example.x_in, example.timesteps, example.context)
        begin_s = time.perf_counter()
        residuals = _Watched(self._control_net.residuals(*inputs, self._hint, example.adm))
        middle_s = time.perf_counter()
        self._network.predict(*inputs, example.adm, residuals)
        end_s = time.perf_counter()
        assert residuals.read_at_s is not None
        return {
            "control_net_s": middle_s - begin_s,
            "head_s": residuals.read_at_s - middle_s,
            "tail_s": end_s - residuals.read_at_s,
        }


def main() -> None:
    """Answer until stdin ends."""
    checkpoint, control_net, size_px, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    parts = Parts(Path(checkpoint), Path(control_net), int(size_px))
    for _ in sys.stdin:
        sys.stdout.write(json.dumps(parts.measure()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
