"""Measure how long a cold request waits for weights: a stack of equal layers behind an emulated link.

Run as `python -m comfyserverless.bench.load OPTIONS` (JSON). Cases: everything loaded before the first layer
computes; layers loaded behind the compute; the same with the prefix resident that the product computes from its
own profile, and with half of it; everything resident. The link is emulated, so that loading takes a chosen
multiple of computing.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from comfyserverless.models.reading.weights import open_weights
from comfyserverless.models.resident.keeper import Keeper
from comfyserverless.models.resident.residence import Residence
from comfyserverless.models.resident.skeleton import Runner, steps_of
from comfyserverless.models.resident.transfer import Transfer
from comfyserverless.residency.policy import PolicyName
from comfyserverless.residency.prefix import uniform_prefix

WIDTH, TOKENS, HEADS = 128, 1024, 4
ROOM_BYTES = 1 << 40
CALIBRATION_RUNS = 12


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What to measure.

    layers: of the stack; rounds: of all cases in turn; threads: of torch; link_gbps: gigabits a second of the
    emulated link, 0 for one with which loading a layer takes load_ratio times as long as computing it.
    """

    layers: int = 24
    rounds: int = 9
    threads: int = 1
    link_gbps: float = 0.0
    load_ratio: float = 3.0


def build_stack(layers: int) -> nn.Sequential:
    """Return equal transformer layers."""
    return nn.Sequential(
        *(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
            for _ in range(layers)
        )
    )


def write_stack(path: Path, layers: int) -> None:
    """Write a stack with seeded weights."""
    torch.manual_seed(0)
    save_file({name: tensor.contiguous() for name, tensor in build_stack(layers).state_dict().items()}, path)


def make_runner(
    path: Path, layers: int, link_gbps: float | None, policy: PolicyName = "layers"
) -> tuple[Keeper, Runner[nn.Sequential]]:
    """Return a worker's weights with room for all, and the stack in it."""
    keeper = Keeper(Transfer(torch.device("cpu"), link_gbps=link_gbps), ROOM_BYTES, policy)
    residence = Residence(keeper)
    weights = open_weights(str(path))
    skeleton = residence.skeletons.take("stack", {"layers": layers}, lambda: build_stack(layers))
    order = ((), *((str(at),) for at in range(1, layers)))
    recipes = residence.recipes(skeleton, weights, {name: name for name in weights})
    return keeper, Runner(keeper, skeleton, residence.register("stack", recipes, order), steps_of(order))


def timed_s(runner: Runner[nn.Sequential], x: Tensor) -> float:
    """Return the seconds of one request."""
    begin_s = time.perf_counter()
    with torch.inference_mode(), runner.running() as module:
        module(x)
    return time.perf_counter() - begin_s


def prefix_of(runner: Runner[nn.Sequential]) -> int:
    """Return the prefix that follows from what was measured so far."""
    prefix = runner.base.profile.prefix()
    assert prefix is not None, "both times of every layer are known by now"
    return prefix


def measure(options: LoadOptions, path: Path) -> dict[str, object]:
    """Measure all cases in turn; returns the result (see `summary`)."""
    write_stack(path, options.layers)
    x = torch.randn(1, TOKENS, WIDTH)
    _, plain = make_runner(path, options.layers, None)
    layer_s = min(timed_s(plain, x) for _ in range(CALIBRATION_RUNS)) / options.layers
    layer_bytes = plain.base.layers[0].size_bytes
    link_gbps = options.link_gbps or layer_bytes * 8 / (options.load_ratio * layer_s) / 1e9
    keeper, runner = make_runner(path, options.layers, link_gbps)
    whole, serial = make_runner(path, options.layers, link_gbps, "models")
    while not runner.base.profile.is_settled:
        timed_s(runner, x)
    cases: dict[str, tuple[Runner[nn.Sequential], Callable[[], None]]] = {
        "serial": (serial, lambda: whole.shrink(serial.base, 0)),
        "pipelined": (runner, lambda: keeper.shrink(runner.base, 0)),
        "prefix": (runner, lambda: keeper.shrink(runner.base, prefix_of(runner))),
        "half_prefix": (runner, lambda: keeper.shrink(runner.base, prefix_of(runner) // 2)),
        "resident": (runner, lambda: None),
    }
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for at in range(options.rounds + 1):
        for name, (each, prepare) in cases.items():
            prepare()
            elapsed_s = timed_s(each, x)
            if at:  # the first round warms up
                seconds[name].append(elapsed_s)
    compute_ns = [each or 0 for each in runner.base.profile.compute_ns]
    load_ns = [each or 0 for each in runner.base.profile.load_ns]
    facts = {
        "link_gbps": round(link_gbps, 4),
        "layers": options.layers,
        "layer_bytes": layer_bytes,
        "prefix": prefix_of(runner),
        "prefix_of_equal_layers": uniform_prefix(
            options.layers,
            statistics.median(load_ns),
            min(statistics.median(compute_ns), statistics.median(load_ns)),
        ),
    }
    return summary(seconds) | facts


def summary(seconds: dict[str, list[float]]) -> dict[str, object]:
    """Compare the fastest round of each case: whatever else the machine does only adds to a time.

    exposed_vs_pipelined: time beyond the resident case, of the prefix over no prefix; vs_resident: of the
    prefix; half_prefix_saves: share of the serial load that half of the prefix hides.
    """
    best = {name: min(values) for name, values in seconds.items()}
    exposed_s = {name: value - best["resident"] for name, value in best.items()}
    return {
        "bench": "load",
        "emulated_link": True,
        "exposed_vs_pipelined": round(max(0.0, exposed_s["prefix"]) / exposed_s["pipelined"], 4),
        "vs_resident": round(best["prefix"] / best["resident"], 4),
        "half_prefix_saves": round(1 - exposed_s["half_prefix"] / exposed_s["serial"], 4),
        "fastest_s": {name: round(value, 4) for name, value in best.items()},
        "median_s": {name: round(statistics.median(values), 4) for name, values in seconds.items()},
    }


def show(result: dict[str, object]) -> None:
    """Print a table, and the result as JSON in the last line."""
    lines = [
        f"{result['layers']} equal layers of {result['layer_bytes']} bytes behind an EMULATED link of"
        f" {result['link_gbps']} Gbit/s; prefix {result['prefix']} layers"
        f" ({result['prefix_of_equal_layers']} by the formula for equal layers)"
    ]
    fastest_s, median_s = result["fastest_s"], result["median_s"]
    assert isinstance(fastest_s, dict)
    assert isinstance(median_s, dict)
    lines.append(f"{'seconds':<14}{'fastest':>9}{'median':>9}")
    lines += [f"{name:<14}{value:>9.3f}{median_s[name]:>9.3f}" for name, value in fastest_s.items()]
    sys.stdout.write("\n".join((*lines, json.dumps(result))) + "\n")


def main() -> None:
    """Measure with the options of the command line."""
    options = LoadOptions(**json.loads(sys.argv[1]))
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory(prefix="comfyserverless-bench-") as folder:
        show(measure(options, Path(folder) / "stack.safetensors"))


if __name__ == "__main__":
    main()
