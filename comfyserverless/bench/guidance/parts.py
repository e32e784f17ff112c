"""Measure an evaluation of a model with both branches in one batch, and with one branch, in its own process.

Run as `python -m comfyserverless.bench.guidance.parts CHECKPOINT SIZE THREADS`. Each line on stdin asks for one
measurement, and is answered by one JSON line (`bench.guidance.gain.EvaluationParts`).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

from comfyserverless.bench.control_parts import Example
from comfyserverless.bench.direct import file_ref
from comfyserverless.core.values import ModelRef
from comfyserverless.models.pool import ModelPool


class Parts:
    """The model, and inputs of the size that the workload has."""

    def __init__(self, checkpoint: Path, size_px: int) -> None:
        pool, model = ModelPool(torch.device("cpu")), ModelRef(file_ref(checkpoint))
        self._network = pool.diffusion(model)
        self._both, self._one = (Example.of(pool.facts(model), size_px, entries) for entries in (2, 1))

    def measure(self) -> dict[str, float]:
        """Run the model twice; returns the seconds of both."""
        return {"batched_s": self._run(self._both), "branch_s": self._run(self._one)}

    @torch.inference_mode()
    def _run(self, example: Example) -> float:
        begin_s = time.perf_counter()
        self._network.predict(example.x_in, example.timesteps, example.context, example.adm)
        return time.perf_counter() - begin_s


def main() -> None:
    """Answer until stdin ends."""
    checkpoint, size_px, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    parts = Parts(Path(checkpoint), int(size_px))
    for _ in sys.stdin:
        sys.stdout.write(json.dumps(parts.measure()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
