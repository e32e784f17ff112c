"""Measure what a second worker gains for ControlNets, against the most that it could gain.

One server has one worker, the other has two, each worker with the same number of threads; both make the same
pictures, warm, in turns: while one runs, the other sleeps. The bound comes from the parts of a step, which a
process of its own measures between the pictures. What is compared is the fastest step: whatever else the
machine does can only make steps slower, and one that it leaves alone tells what two workers do for each other.
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
from typing import Any

from websockets.sync.client import ClientConnection, connect

from comfyserverless.bench.serving import BenchError, running, served
from comfyserverless.bench.sides import CLIENT_ID, ServerSide
from comfyserverless.bench.workload import Workload

NETS = (1, 2)
_WORKERS = (1, 2)
_STRENGTHS = (0.8, 0.5)
_ASKED = 10
"""How often the parts are measured between two pictures."""


@dataclass(frozen=True, slots=True)
class ControlWorkload(Workload):
    """A picture with ControlNets. nets: how many of them, all of the same file, with strengths of their own."""

    control_net: Path
    nets: int

    def prompt(self, seed: int) -> dict[str, Any]:
        """Return the graph in API form."""
        graph = Workload.prompt(self, seed)  # a class with slots has no super()
        graph["10"] = _node("ControlNetLoader", control_net_name=self.control_net.name)
        graph["11"] = _node("EmptyImage", width=self.size_px, height=self.size_px, batch_size=1, color=0x808080)
        positive, negative = ["2", 0], ["3", 0]
        for number, strength in enumerate(_STRENGTHS[: self.nets], start=12):
            graph[str(number)] = _node(
                "ControlNetApplyAdvanced",
                positive=positive,
                negative=negative,
                control_net=["10", 0],
                image=["11", 0],
                strength=strength,
                start_percent=0.0,
                end_percent=1.0,
            )
            positive, negative = [str(number), 0], [str(number), 1]
        graph["5"]["inputs"] |= {"positive": positive, "negative": negative}
        return graph


@dataclass(frozen=True, slots=True)
class StepParts:
    """Seconds of the parts of one step, alone: a ControlNet; the model until it needs residuals; its rest."""

    control_net_s: float
    head_s: float
    tail_s: float

    def serial_s(self, nets: int) -> float:
        """Return the seconds of a step on one worker."""
        return nets * self.control_net_s + self.head_s + self.tail_s

    def overlapped_s(self, nets: int) -> float:
        """Return the least seconds of a step on two workers, when neither waits for anything but results.

        Either the model begins beside all ControlNets, which then share a worker; or they share both workers,
        and the model begins when the first worker is free.
        """
        model_s = self.head_s + self.tail_s
        beside_s = max(nets * self.control_net_s, self.head_s) + self.tail_s
        after_s = -(-nets // len(_WORKERS)) * self.control_net_s + model_s
        return min(beside_s, after_s)


@dataclass(frozen=True, slots=True)
class Gain:
    """What a second worker gains with so many ControlNets.

    one_s, two_s: seconds of each measured step on one worker, and on two; identical: whether both made the same
    picture.
    """

    workload: ControlWorkload
    parts: StepParts
    one_s: tuple[float, ...]
    two_s: tuple[float, ...]
    identical: bool

    @property
    def speedup(self) -> float:
        """Return how many times faster two workers take a step."""
        return min(self.one_s) / min(self.two_s)

    @property
    def median_speedup(self) -> float:
        """Return the same of the median steps: less, on a machine that is busy otherwise."""
        return statistics.median(self.one_s) / statistics.median(self.two_s)

    @property
    def bound(self) -> float:
        """Return the most that `speedup` could be."""
        nets = self.workload.nets
        return self.parts.serial_s(nets) / self.parts.overlapped_s(nets)


class _Pair:
    """The two servers with one workload, and the steps that they took."""

    def __init__(self, workload: ControlWorkload, links: list[tuple[str, ClientConnection]]) -> None:
        self.workload = workload
        self._sides = [ServerSide(url, link, workload) for url, link in links]
        self.steps_s: list[list[float]] = [[] for _ in self._sides]

    def draw(self, seed: int) -> list[bytes]:
        """Let both make a picture; returns the two PNGs."""
        pictures = [side.picture(seed)[1] for side in self._sides]
        for side, steps_s in zip(self._sides, self.steps_s, strict=True):
            steps_s += side.steps_s
        return pictures


def measure(workload: Workload, control_net: Path, rounds: int) -> list[Gain]:
    """Run both servers `rounds` times in turns, after one unmeasured round. Raises BenchError."""
    asked = [_with_nets(workload, control_net, nets) for nets in NETS]
    with tempfile.TemporaryDirectory(prefix="comfyserverless-bench-") as name, ExitStack() as stack:
        process = stack.enter_context(_measuring_parts(asked[0]))
        folders = [(workers, Path(name) / str(workers)) for workers in _WORKERS]
        links = [stack.enter_context(_serving(asked[0], folder, workers)) for workers, folder in folders]
        identical = [first == second for first, second in (_Pair(each, links).draw(0) for each in asked)]
        pairs = [_Pair(each, links) for each in asked]
        seen = []
        for seed in range(1, rounds + 1):
            for pair in pairs:
                seen += [_ask(process) for _ in range(_ASKED)]
                pair.draw(seed)
    parts = _fastest(seen)
    return [
        Gain(pair.workload, parts, tuple(pair.steps_s[0]), tuple(pair.steps_s[1]), same)
        for pair, same in zip(pairs, identical, strict=True)
    ]


def _with_nets(workload: Workload, control_net: Path, nets: int) -> ControlWorkload:
    return ControlWorkload(
        workload.checkpoint, workload.steps, workload.size_px, workload.threads, control_net, nets
    )


def _fastest(seen: list[StepParts]) -> StepParts:
    """Return the fastest time of each part."""
    return StepParts(
        min(each.control_net_s for each in seen),
        min(each.head_s for each in seen),
        min(each.tail_s for each in seen),
    )


def _ask(process: subprocess.Popen[str]) -> StepParts:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise BenchError(f"the process that measures the parts ended with code {process.wait()}")
    return StepParts(**json.loads(line))


@contextmanager
def _measuring_parts(workload: ControlWorkload) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "comfyserverless.bench.control_parts", str(workload.checkpoint)]
    command += [str(workload.control_net), str(workload.size_px), str(workload.threads)]
    with running(command, workload.threads, subprocess.PIPE) as process:
        yield process


@contextmanager
def _serving(workload: ControlWorkload, folder: Path, workers: int) -> Iterator[tuple[str, ClientConnection]]:
    """Start a server with so many workers and the two models; stop it in the end."""
    for kind, file in (("checkpoints", workload.checkpoint), ("controlnet", workload.control_net)):
        place = folder / "models" / kind
        place.mkdir(parents=True)
        (place / file.name).symlink_to(file)
    with served(folder, ["--cache-none"], workload.threads, workers) as url:
        address = url.replace("http", "ws", 1)
        with connect(f"{address}/ws?clientId={CLIENT_ID}", max_size=None) as link:
            yield url, link


def _node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


def show(gains: list[Gain]) -> None:
    """Print the gains: a table for people, and one JSON object as the last line."""
    workload, parts = gains[0].workload, gains[0].parts
    print(
        f"{workload.checkpoint.name} with {workload.control_net.name}, {workload.size_px}x{workload.size_px},"
        f" {workload.threads} thread(s) each, {len(gains[0].one_s)} steps of each kind"
    )
    print(
        f"parts of a step: ControlNet {parts.control_net_s * 1e3:.1f} ms, model until it needs residuals"
        f" {parts.head_s * 1e3:.1f} ms, its rest {parts.tail_s * 1e3:.1f} ms"
    )
    print("the fastest step, in ms:")
    print(f"{'ControlNets':<14}{'1 worker':>10}{'2 workers':>11}{'speed-up':>10}{'bound':>8}{'same':>6}")
    for gain in gains:
        one_ms, two_ms = min(gain.one_s) * 1e3, min(gain.two_s) * 1e3
        print(
            f"{gain.workload.nets:<14}{one_ms:>10.1f}{two_ms:>11.1f}{gain.speedup:>10.3f}{gain.bound:>8.3f}"
            f"{'yes' if gain.identical else 'NO':>6}"
        )
    print(json.dumps(summary(gains)))


def summary(gains: list[Gain]) -> dict[str, object]:
    """Return the machine-readable form, by number of ControlNets."""
    by_nets = {str(gain.workload.nets): gain for gain in gains}
    return {
        "bench": "controlnet",
        "speedup": {nets: round(gain.speedup, 4) for nets, gain in by_nets.items()},
        "bound": {nets: round(gain.bound, 4) for nets, gain in by_nets.items()},
        "of_bound": {nets: round(gain.speedup / gain.bound, 4) for nets, gain in by_nets.items()},
        "identical": {nets: gain.identical for nets, gain in by_nets.items()},
        "median_speedup": {nets: round(gain.median_speedup, 4) for nets, gain in by_nets.items()},
        "size_px": gains[0].workload.size_px,
        "threads": gains[0].workload.threads,
        "measured_steps": len(gains[0].one_s),
    }
