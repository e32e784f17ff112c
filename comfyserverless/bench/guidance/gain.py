"""Compare servers that batch the branches of guidance with servers that split them, on one worker and on two.

All make the same pictures, warm, in turns: while one runs, the others sleep. The bound comes from the model
alone, which a process of its own measures between the pictures. As in `bench.controlnet`, what is compared is
the fastest step.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from comfyserverless.bench.serving import BenchError, running
from comfyserverless.bench.sides import ServerSide, serving
from comfyserverless.bench.workload import Workload

_ASKED = 10
"""How often the model is measured between two pictures."""

_SPLIT = ("--split-guidance", "on")


@dataclass(frozen=True, slots=True)
class EvaluationParts:
    """Seconds of the model alone: with both branches in one batch, and with one branch."""

    batched_s: float
    branch_s: float


@dataclass(frozen=True, slots=True)
class Gain:
    """What splitting gains or costs.

    batched_s, one_s, two_s: seconds of each measured step: in one batch on one worker, split on one, and split
    on two; identical: whether one worker and two made the same picture of split guidance.
    """

    workload: Workload
    parts: EvaluationParts
    batched_s: tuple[float, ...]
    one_s: tuple[float, ...]
    two_s: tuple[float, ...]
    identical: bool

    @property
    def speedup(self) -> float:
        """Return how many times faster a step is that is split over two workers."""
        return min(self.batched_s) / min(self.two_s)

    @property
    def median_speedup(self) -> float:
        """Return the same of the median steps: less, on a machine that is busy otherwise."""
        return statistics.median(self.batched_s) / statistics.median(self.two_s)

    @property
    def bound(self) -> float:
        """Return the most that `speedup` could be: both branches at once, and nothing else to do."""
        return self.parts.batched_s / self.parts.branch_s

    @property
    def one_worker(self) -> float:
        """Return how many times faster splitting is if there is no second worker; usually it is slower."""
        return min(self.batched_s) / min(self.one_s)


class _Server:
    """One of the servers, and the steps that it took."""

    def __init__(self, side: ServerSide) -> None:
        self._side = side
        self.steps_s: list[float] = []

    def draw(self, seed: int) -> bytes:
        """Make a picture; returns the PNG."""
        picture = self._side.picture(seed)[1]
        self.steps_s += self._side.steps_s
        return picture


def measure(workload: Workload, rounds: int) -> Gain:
    """Run all servers `rounds` times in turns, after one unmeasured round. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="comfyserverless-bench-") as name, ExitStack() as stack:
        process = stack.enter_context(_measuring_parts(workload))
        sides = [
            stack.enter_context(serving(workload, Path(name) / str(number), flags, workers))
            for number, (flags, workers) in enumerate([((), 1), (_SPLIT, 1), (_SPLIT, 2)])
        ]
        _, first, second = (side.picture(0)[1] for side in sides)
        servers, parts, is_same = [_Server(side) for side in sides], [], first == second
        for seed in range(1, rounds + 1):
            parts += [_ask(process) for _ in range(_ASKED)]
            _, first, second = (server.draw(seed) for server in servers)
            is_same = is_same and first == second
    fastest = EvaluationParts(min(each.batched_s for each in parts), min(each.branch_s for each in parts))
    batched, one, two = (tuple(server.steps_s) for server in servers)
    return Gain(workload, fastest, batched, one, two, is_same)


def _ask(process: subprocess.Popen[str]) -> EvaluationParts:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise BenchError(f"the process that measures the model ended with code {process.wait()}")
    return EvaluationParts(**json.loads(line))


@contextmanager
def _measuring_parts(workload: Workload) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "comfyserverless.bench.guidance.parts", str(workload.checkpoint)]
    command += [str(workload.size_px), str(workload.threads)]
    with running(command, workload.threads, subprocess.PIPE) as process:
        yield process


def show(gain: Gain) -> None:
    """Print the gain: lines for people, and one JSON object as the last line."""
    workload, parts = gain.workload, gain.parts
    print(
        f"{workload.checkpoint.name}, {workload.size_px}x{workload.size_px}, {workload.threads} thread(s) each,"
        f" {len(gain.batched_s)} steps of each kind"
    )
    print(
        f"the model alone: both branches in one batch {parts.batched_s * 1e3:.1f} ms,"
        f" one branch {parts.branch_s * 1e3:.1f} ms"
    )
    for what, steps_s in (
        ("one batch, 1 worker", gain.batched_s),
        ("split, 1 worker", gain.one_s),
        ("split, 2 workers", gain.two_s),
    ):
        print(f"fastest step, {what + ':':<21}{min(steps_s) * 1e3:>8.1f} ms")
    verdict = "pays" if gain.speedup > 1 else "does not pay"
    print(f"--split-guidance on {verdict} for this model and size, while a second worker is free")
    print(json.dumps(summary(gain)))


def summary(gain: Gain) -> dict[str, object]:
    """Return the machine-readable form."""
    return {
        "bench": "guidance",
        "speedup": round(gain.speedup, 4),
        "bound": round(gain.bound, 4),
        "of_bound": round(gain.speedup / gain.bound, 4),
        "batched_vs_split_one_worker": round(gain.one_worker, 4),
        "identical": gain.identical,
        "median_speedup": round(gain.median_speedup, 4),
        "size_px": gain.workload.size_px,
        "threads": gain.workload.threads,
        "measured_steps": len(gain.batched_s),
    }
