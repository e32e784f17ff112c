"""Measure what a LoRA that is new to a warm base costs: the layers that it changes, and nothing of the base.

Run as `python -m comfyserverless.bench.lora OPTIONS` (JSON). In turns: a request with the strength of the last
one, and a request with a strength that was never seen. Both make the same steps; the base stays resident.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from comfyserverless.bench.direct import Direct, file_ref
from comfyserverless.core.values import LoraRef
from comfyserverless.models.pool import ModelPool, PoolOptions


@dataclass(frozen=True, slots=True)
class LoraOptions:
    """What to measure; kept: how many variants the memory holds beside the base."""

    checkpoint: str
    lora: str
    rounds: int = 9
    steps: int = 8
    size_px: int = 128
    threads: int = 1
    kept: int = 4


def _timed(direct: Direct, seed: int) -> float:
    begin_s = time.perf_counter()
    direct.picture(seed)
    return time.perf_counter() - begin_s


def measure(options: LoraOptions) -> dict[str, object]:
    """Measure pairs of requests; returns the result."""
    checkpoint, file = Path(options.checkpoint), file_ref(Path(options.lora))

    def variant(pool: ModelPool, strength: float) -> Direct:
        return Direct(checkpoint, options.steps, options.size_px, pool, (LoraRef(file, strength),))

    free = ModelPool()
    base_bytes = _bytes_after(Direct(checkpoint, 1, options.size_px, free), free)
    private_bytes = _bytes_after(variant(free, 0.5), free) - base_bytes
    pool = ModelPool(options=PoolOptions(device_bytes=base_bytes + options.kept * private_bytes))
    plain = Direct(checkpoint, options.steps, options.size_px, pool)
    for _ in range(4):  # measured layer by layer, then settled
        _timed(plain, 0)
    loaded_bytes = sum(model.loaded_bytes for model in plain.models())
    before, warm_s, first_s, patch_s = variant(pool, 0.3), [], [], []
    _timed(before, 0)
    for number in range(options.rounds):
        warm_s.append(_timed(before, number))
        begin_s = time.perf_counter()
        after = variant(pool, 0.31 + 0.01 * number)
        after.picture(number)
        first_s.append(time.perf_counter() - begin_s)
        private = [model for model in after.models() if model not in plain.models()]
        patch_s.append(sum(model.loaded_ns for model in private) / 1e9)
        before = after
    beside = [(first - patch) / warm for first, patch, warm in zip(first_s, patch_s, warm_s, strict=True)]
    return {
        "bench": "lora",
        "first_vs_warm": round(statistics.median(beside), 4),
        "base_bytes_reloaded": sum(model.loaded_bytes for model in plain.models()) - loaded_bytes,
        "warm_s": round(statistics.median(warm_s), 4),
        "first_s": round(statistics.median(first_s), 4),
        "patch_s": round(statistics.median(patch_s), 4),
        "base_bytes": base_bytes,
        "private_bytes": private_bytes,
        "resident_bytes": pool.weights_bytes,
        "rounds": options.rounds,
    }


def _bytes_after(direct: Direct, pool: ModelPool) -> int:
    direct.picture(0)
    return pool.weights_bytes


def show(result: dict[str, object]) -> None:
    """Print a table, and the result as JSON in the last line."""
    lines = [
        f"base of {result['base_bytes']} bytes, {result['private_bytes']} bytes of each LoRA variant",
        *(f"{name:<20}{result[name]:>10} s" for name in ("warm_s", "first_s", "patch_s")),
        json.dumps(result),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def main() -> None:
    """Measure with the options of the command line."""
    options = LoraOptions(**json.loads(sys.argv[1]))
    torch.set_num_threads(options.threads)
    show(measure(options))


if __name__ == "__main__":
    main()
