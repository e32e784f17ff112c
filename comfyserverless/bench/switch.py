"""Measure requests a second when tenants with models of their own take turns on one worker that holds fewer.

Run as `python -m comfyserverless.bench.switch OPTIONS` (JSON). The same worker code runs with each policy of
residency: ours by layer, whole workflows, whole models, and none. All but ours load whole models before they
compute. The link to the device is emulated, so that loading a checkpoint takes a chosen multiple of computing a
picture; the paper (section 5.1) measured 3 to 13 times for the parts of Flux. The larger it is, the more there
is to hide.
"""

from __future__ import annotations

import io
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from comfyserverless.bench.direct import Direct
from comfyserverless.models.pool import ModelPool, PoolOptions
from comfyserverless.residency.policy import POLICIES, PolicyName

CALIBRATION_RUNS = 7
_CHANGED = "model.diffusion_model.out.2.bias"


@dataclass(frozen=True, slots=True)
class SwitchOptions:
    """What to measure.

    checkpoint: every tenant has its own variant of it; held: how many of them the device holds; rounds:
    requests of each tenant; link_gbps: of the emulated link, 0 for one with which loading a checkpoint takes
    load_ratio times as long as a picture.
    """

    checkpoint: str
    tenants: int = 4
    held: float = 2.5
    rounds: int = 4
    steps: int = 4
    size_px: int = 128
    threads: int = 1
    link_gbps: float = 0.0
    load_ratio: float = 8.0


def write_variants(options: SwitchOptions, folder: Path) -> list[Path]:
    """Write a checkpoint for each tenant, which draws other pictures."""
    tensors = load_file(options.checkpoint)
    paths = [folder / f"tenant_{number}.safetensors" for number in range(options.tenants)]
    for number, path in enumerate(paths):
        save_file(tensors | {_CHANGED: tensors[_CHANGED] + 0.01 * number}, path)
    return paths


class Worker:
    """The models of all tenants under one policy."""

    def __init__(self, paths: list[Path], options: SwitchOptions, pool: ModelPool) -> None:
        self._tenants = [Direct(path, options.steps, options.size_px, pool) for path in paths]

    def answer(self, tenant: int, seed: int) -> bytes:
        """Return the PNG of one request."""
        png = io.BytesIO()
        self._tenants[tenant].picture(seed).save(png, "PNG")
        return png.getvalue()


def measure(options: SwitchOptions, folder: Path) -> dict[str, object]:
    """Let tenants take turns under every policy; returns the result."""
    paths = write_variants(options, folder)
    free = ModelPool()
    everything = Worker(paths, options, free)
    everything.answer(0, 0)
    checkpoint_bytes = free.weights_bytes
    picture_s = statistics.median(_timed(everything, 0, seed)[0] for seed in range(CALIBRATION_RUNS))
    link_gbps = options.link_gbps or checkpoint_bytes * 8 / (options.load_ratio * picture_s) / 1e9
    expected = {
        (tenant, seed): everything.answer(tenant, seed)
        for seed in range(options.rounds + 1)
        for tenant in range(options.tenants)
    }
    budget_bytes = round(options.held * checkpoint_bytes)
    workers = {
        policy: Worker(paths, options, ModelPool(options=_pool_options(policy, budget_bytes, link_gbps)))
        for policy in POLICIES
    }
    seconds: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    are_identical = True
    for (tenant, seed), png in expected.items():
        for policy, worker in workers.items():  # each request under all of them, so that slow phases are shared
            elapsed_s, got = _timed(worker, tenant, seed)
            are_identical = are_identical and got == png
            if seed:  # the first round fills the memory
                seconds[policy].append(elapsed_s)
    rates = {policy: len(each) / sum(each) for policy, each in seconds.items()}
    return {
        "bench": "switch",
        "emulated_link": True,
        "speedup_vs_best": round(
            rates["layers"] / max(rates[each] for each in POLICIES if each != "layers"), 4
        ),
        "identical": are_identical and len(set(expected.values())) == len(expected),
        "requests_per_s": {policy: round(rate, 4) for policy, rate in rates.items()},
        "link_gbps": round(link_gbps, 4),
        "checkpoint_bytes": checkpoint_bytes,
        "budget_bytes": budget_bytes,
        "load_ratio": options.load_ratio,
        "tenants": options.tenants,
        "steps": options.steps,
    }


def _pool_options(policy: PolicyName, budget_bytes: int, link_gbps: float) -> PoolOptions:
    return PoolOptions(device_bytes=budget_bytes, policy=policy, link_gbps=link_gbps)


def _timed(worker: Worker, tenant: int, seed: int) -> tuple[float, bytes]:
    begin_s = time.perf_counter()
    png = worker.answer(tenant, seed)
    return time.perf_counter() - begin_s, png


def show(result: dict[str, object]) -> None:
    """Print a table, and the result as JSON in the last line."""
    rates = result["requests_per_s"]
    assert isinstance(rates, dict)
    lines = [
        f"{result['tenants']} tenants in turn, each with a checkpoint of {result['checkpoint_bytes']} bytes;"
        f" memory of {result['budget_bytes']} bytes; EMULATED link of {result['link_gbps']} Gbit/s",
        f"{'policy':<12}{'requests/s':>12}",
        *(f"{policy:<12}{rate:>12.3f}" for policy, rate in rates.items()),
        json.dumps(result),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def main() -> None:
    """Measure with the options of the command line."""
    options = SwitchOptions(**json.loads(sys.argv[1]))
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory(prefix="comfyserverless-bench-") as folder:
        show(measure(options, Path(folder)))


if __name__ == "__main__":
    main()
