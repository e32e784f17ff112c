"""Measure what the way through the whole server costs, against the same components called in one process.

Both sides make the same pictures, warm, with the same number of threads, in turns: while one runs, the other
sleeps. Node results are not cached, so the server does all the work each time.
"""

from __future__ import annotations

import io
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from comfyserverless.bench.sides import Side, looping, serving
from comfyserverless.bench.workload import Workload

__all__ = ["Comparison", "Workload", "measure"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Wall seconds of one picture, by round.

    largest_difference: between the two sides' pictures of the same seed, in levels of 0..255.
    """

    workload: Workload
    server_s: tuple[float, ...]
    direct_s: tuple[float, ...]
    largest_difference: int

    @property
    def ratio(self) -> float:
        """Return server over plain loop: the median of the rounds' ratios, so slow phases cancel."""
        return statistics.median(a / b for a, b in zip(self.server_s, self.direct_s, strict=True))

    @property
    def us_per_invocation(self) -> float:
        """Return what the server adds to one model function, in microseconds: the median over the rounds."""
        extra_s = statistics.median(a - b for a, b in zip(self.server_s, self.direct_s, strict=True))
        return extra_s / self.workload.invocations() * 1e6


def measure(workload: Workload, rounds: int) -> Comparison:
    """Run both sides `rounds` times in turns, after one unmeasured round. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="comfyserverless-bench-") as name:
        folder = Path(name)
        with serving(workload, folder) as server, looping(workload, folder) as direct:
            sides: list[Side] = [server, direct]
            pictures = [side.picture(0)[1] for side in sides]
            seconds: list[dict[int, float]] = []
            for seed in range(1, rounds + 1):
                # Each side goes first every other time: neither profits from being second.
                order = (0, 1) if seed % 2 else (1, 0)
                seconds.append({index: sides[index].picture(seed)[0] for index in order})
    return Comparison(
        workload,
        tuple(row[0] for row in seconds),
        tuple(row[1] for row in seconds),
        _largest_difference(*pictures),
    )


def _largest_difference(first: bytes, second: bytes) -> int:
    """Return the largest difference of two PNGs of the same size, in levels."""
    from PIL import Image, ImageChops

    pair = [Image.open(io.BytesIO(png)).convert("RGB") for png in (first, second)]
    bands = ImageChops.difference(pair[0], pair[1]).getextrema()
    return max(int(high) for _, high in bands)  # type: ignore[misc]
