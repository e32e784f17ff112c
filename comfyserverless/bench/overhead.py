"""Measure what the way through the whole server costs, against the same components called in one process.

Both sides make the same pictures, warm, with the same number of threads, in turns: while one runs, the other
sleeps. Node results are not cached, so the server does all the work each time.
"""

from __future__ import annotations

import io
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from comfyserverless.bench.sides import Side, looping, serving
from comfyserverless.bench.workload import Workload

__all__ = ["Comparison", "Workload", "measure"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Wall seconds of one picture, by round.

    previewed_s: of the server with previews of its steps, empty if they were not asked for. previews: how many
    came with a picture, at least. largest_difference: between the two sides' pictures of the same seed, in
    levels of 0..255.
    """

    workload: Workload
    server_s: tuple[float, ...]
    direct_s: tuple[float, ...]
    largest_difference: int
    previewed_s: tuple[float, ...] = ()
    previews: int = 0

    @property
    def ratio(self) -> float:
        """Return server over plain loop: the median of the rounds' ratios, so slow phases cancel."""
        return _ratio(self.server_s, self.direct_s)

    @property
    def preview_ratio(self) -> float | None:
        """Return the server with previews over the server without; None if that was not measured."""
        return _ratio(self.previewed_s, self.server_s) if self.previewed_s else None

    @property
    def us_per_invocation(self) -> float:
        """Return what the server adds to one model function, in microseconds: the median over the rounds."""
        extra_s = statistics.median(a - b for a, b in zip(self.server_s, self.direct_s, strict=True))
        return extra_s / self.workload.invocations() * 1e6


def measure(workload: Workload, rounds: int, *, with_previews: bool = False) -> Comparison:
    """Run all sides `rounds` times in turns, after one unmeasured round. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="comfyserverless-bench-") as name:
        folder = Path(name)
        with serving(workload, folder) as server, looping(workload, folder) as direct:
            previewing = server.previewing()
            sides: list[Side] = [server, direct, *([previewing] if with_previews else [])]
            pictures = [side.picture(0)[1] for side in sides]
            seconds: list[dict[int, float]] = []
            counts: list[int] = []
            for seed in range(1, rounds + 1):
                # Each side goes first in turn: none profits from its place.
                order = [(seed + place) % len(sides) for place in range(len(sides))]
                seconds.append({index: sides[index].picture(seed)[0] for index in order})
                counts.append(previewing.previews)
    return Comparison(
        workload,
        tuple(row[0] for row in seconds),
        tuple(row[1] for row in seconds),
        _largest_difference(*pictures[:2]),
        tuple(row[2] for row in seconds if with_previews),
        min(counts),
    )


def _ratio(first_s: Sequence[float], second_s: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(first_s, second_s, strict=True))


def _largest_difference(first: bytes, second: bytes) -> int:
    """Return the largest difference of two PNGs of the same size, in levels."""
    from PIL import Image, ImageChops

    pair = [Image.open(io.BytesIO(png)).convert("RGB") for png in (first, second)]
    bands = ImageChops.difference(pair[0], pair[1]).getextrema()
    return max(int(high) for _, high in bands)  # type: ignore[misc]
