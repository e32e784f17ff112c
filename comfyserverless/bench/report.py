"""Print a measurement: a table for people, and one JSON object as the last line."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence

from comfyserverless.bench.overhead import Comparison


def show(result: Comparison) -> None:
    """Print the comparison."""
    workload = result.workload
    print(
        f"{workload.checkpoint.name}, {workload.size_px}x{workload.size_px}, {workload.steps} steps,"
        f" {workload.threads} thread(s), {workload.invocations()} invocations, {len(result.server_s)} rounds"
    )
    print(f"{'seconds for one picture':<28}{'median':>10}{'fastest':>10}{'slowest':>10}")
    print(_row("whole server", result.server_s))
    if result.previewed_s:
        print(_row("whole server with previews", result.previewed_s))
    print(_row("same parts in a plain loop", result.direct_s))
    print(f"largest difference of the two pictures: {result.largest_difference} of 255 levels")
    extra_us = round(result.us_per_invocation)
    print(f"the server takes {result.ratio:.3f} times as long: {extra_us} us more for each invocation")
    if result.preview_ratio is not None:
        print(
            f"with previews ({result.previews} of a picture) it takes {result.preview_ratio:.3f} times as long"
        )
    print(json.dumps(summary(result)))


def summary(result: Comparison) -> dict[str, object]:
    """Return the machine-readable form."""
    ratio = result.preview_ratio
    return {
        "bench": "overhead",
        "ratio": round(result.ratio, 4),
        "us_per_invocation": round(result.us_per_invocation, 1),
        "server_s": round(statistics.median(result.server_s), 4),
        "direct_s": round(statistics.median(result.direct_s), 4),
        "rounds": len(result.server_s),
        "steps": result.workload.steps,
        "size_px": result.workload.size_px,
        "threads": result.workload.threads,
        "largest_difference": result.largest_difference,
        **({} if ratio is None else {"preview_ratio": round(ratio, 4), "previews": result.previews}),
    }


def _row(name: str, seconds: Sequence[float]) -> str:
    return f"{name:<28}{statistics.median(seconds):>10.3f}{min(seconds):>10.3f}{max(seconds):>10.3f}"
