"""Kill workers at random moments while pictures are made: all must be finished, with the same bytes.

Each picture of the workload is made undisturbed first. Then, for every kill, one of them is made again, and at
a random moment meanwhile one of the workers gets SIGKILL. The server tells how many steps were taken again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comfyserverless.bench.controlnet import ControlWorkload
from comfyserverless.bench.serving import BenchError, served
from comfyserverless.bench.sides import ServerSide, asking

_READY_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class RecoveryOptions:
    """What to measure.

    controlnet: empty for a workflow without one; checkpoint_steps: k, the most steps between two checkpoints;
    seed: of the moments and victims.
    """

    checkpoint: str
    controlnet: str = ""
    kills: int = 20
    checkpoint_steps: int = 4
    workers: int = 2
    steps: int = 20
    size_px: int = 128
    threads: int = 1
    pictures: int = 4
    seed: int = 0


@dataclass(frozen=True, slots=True)
class NoisyWorkload(ControlWorkload):
    """A picture whose noise shows a step that is taken twice or left out."""

    def prompt(self, seed: int) -> dict[str, Any]:
        """Return the graph in API form."""
        graph = ControlWorkload.prompt(self, seed)  # a class with slots has no super()
        graph["5"]["inputs"]["sampler_name"] = "euler_ancestral"
        return graph


@dataclass(slots=True)
class Outcome:
    """What came of the kills so far. struck: kills that came while the picture was made.

    horizon_s: kills come up to this long after the request; it follows what a picture takes.
    """

    horizon_s: float
    completed: int = 0
    identical: int = 0
    struck: int = 0
    steps_recomputed: list[int] = field(default_factory=list)
    restored: int = 0


class Killer:
    """Kill one of the server's workers, chosen by a seeded generator."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self.random = random.Random(seed)

    def state(self) -> dict[str, Any]:
        """Return what the server tells of its workers."""
        with urllib.request.urlopen(f"{self._url}/comfyserverless/workers", timeout=30) as answer:
            state: dict[str, Any] = json.load(answer)
            return state

    def recovery(self) -> dict[str, int]:
        """Return the server's counts."""
        counts: dict[str, int] = self.state()["recovery"]
        return counts

    def wait_ready(self) -> None:
        """Wait until all workers are there. Raises BenchError."""
        deadline_s = time.monotonic() + _READY_WITHIN_S
        while time.monotonic() < deadline_s:
            if all(worker["state"] == "ready" for worker in self.state()["workers"]):
                return
            time.sleep(0.05)
        raise BenchError("the workers did not come back")

    def strike(self) -> None:
        """Kill a worker that is there, if one is, and wait until the server has noticed."""
        state = self.state()
        pids = [worker["pid"] for worker in state["workers"] if worker["state"] in ("ready", "busy")]
        if not pids:
            return
        os.kill(self.random.choice(pids), signal.SIGKILL)
        while self.recovery()["workers_lost"] == state["recovery"]["workers_lost"]:
            time.sleep(0.02)


def measure(options: RecoveryOptions) -> dict[str, object]:
    """Measure; returns the result (see `summary`). Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="comfyserverless-bench-") as name:
        folder = Path(name)
        workload = _prepare(options, folder)
        flags = ["--cache-none", "--workers", str(options.workers)]
        flags += ["--checkpoint-steps", str(options.checkpoint_steps)]
        with served(folder, flags, options.threads) as url, asking(url, workload) as side:
            killer = Killer(url, options.seed)
            killer.wait_ready()
            made = [side.picture(seed) for seed in range(options.pictures)]
            outcome = Outcome(made[-1][0])
            for number in range(options.kills):
                seed = number % options.pictures
                _kill_once(side, killer, seed, made[seed][1], outcome)
            return summary(options, outcome, killer.recovery(), [seconds for seconds, _ in made])


def _kill_once(side: ServerSide, killer: Killer, seed: int, expected: bytes, outcome: Outcome) -> None:
    """Make a picture again and kill a worker meanwhile."""
    killer.wait_ready()
    before = killer.recovery()
    timer = threading.Timer(killer.random.uniform(0.0, outcome.horizon_s), killer.strike)
    timer.start()
    try:
        seconds, png = side.picture(seed)
        outcome.completed += 1
        outcome.identical += png == expected
        if timer.is_alive():  # it was faster than those before
            outcome.horizon_s = seconds
        else:
            outcome.struck += 1
    except BenchError as exc:
        sys.stderr.write(f"picture {seed}: {exc}\n")
    timer.join()
    after = killer.recovery()
    outcome.steps_recomputed.append(after["steps_rerun"] - before["steps_rerun"])
    outcome.restored += after["restored"] - before["restored"]


def summary(
    options: RecoveryOptions, outcome: Outcome, counts: dict[str, int], undisturbed_s: list[float]
) -> dict[str, object]:
    """Return the machine-readable result; k: the most steps that the server put between two checkpoints."""
    return {
        "bench": "recovery",
        "kills": options.kills,
        "completed": outcome.completed,
        "identical": outcome.identical,
        "most_steps_recomputed": max(outcome.steps_recomputed, default=0),
        "k": counts["checkpoint_steps"],
        "mean_steps_recomputed": round(statistics.fmean(outcome.steps_recomputed or [0]), 3),
        "restored": outcome.restored,
        "kills_while_made": outcome.struck,
        "checkpoints_left": counts["checkpoints"],
        "controlnet": bool(options.controlnet),
        "workers": options.workers,
        "steps": options.steps,
        "seed": options.seed,
        "picture_s": round(statistics.median(undisturbed_s), 4),
    }


def show(result: dict[str, object]) -> None:
    """Print what happened, and the result as JSON in the last line."""
    with_net = "with" if result["controlnet"] else "without"
    lines = [
        f"{result['kills']} kills of one of {result['workers']} workers, {result['kills_while_made']} while a"
        f" picture was made: {result['steps']} steps {with_net} a ControlNet, {result['picture_s']} s",
        f"completed {result['completed']}, identical {result['identical']}",
        f"steps taken again for one kill: at most {result['most_steps_recomputed']} (k is {result['k']}), on"
        f" average {result['mean_steps_recomputed']}; {result['restored']} times from a checkpoint",
        json.dumps(result),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def _prepare(options: RecoveryOptions, folder: Path) -> NoisyWorkload:
    """Lay out the models; returns the workload on them."""
    checkpoint, control_net = Path(options.checkpoint), Path(options.controlnet)
    for kind, path in (("checkpoints", checkpoint), ("controlnet", control_net)):
        (folder / "models" / kind).mkdir(parents=True)
        if path.name:
            (folder / "models" / kind / path.name).symlink_to(path)
    nets = 1 if control_net.name else 0
    return NoisyWorkload(checkpoint, options.steps, options.size_px, options.threads, control_net, nets)
