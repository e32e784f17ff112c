"""Declare the flags of `comfyserverless bench`, and start the measurement that is asked for."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from comfyserverless.bench.server import commands as of_servers
from comfyserverless.control.files import demo_models_folder
from comfyserverless.core.errors import ConfigError
from comfyserverless.demo.places import DEMO_CHECKPOINT, DEMO_CONTROLNET, DEMO_LORA
from comfyserverless.scheduling.config import POLICY_NAMES

MEASUREMENTS: Mapping[str, str] = {
    "overhead": "the whole server against a plain loop",
    "load": "how much of the load of weights a cold request waits for",
    "switch": "tenants with models of their own, in turn on memory for fewer",
    "lora": "a LoRA that is new to a warm base",
    "controlnet": "two workers against one, with one and two ControlNets",
    "guidance": "both branches of guidance in one batch against calls of their own, on one worker and two",
    "recovery": "pictures whose workers are killed at random moments",
    "fairness": "shares and waits of two very uneven tenants, by every policy",
    **of_servers.MEASUREMENTS,
}
_DEFAULT_ROUNDS = {
    "overhead": 9,
    "load": 11,
    "switch": 3,
    "lora": 9,
    "controlnet": 3,
    "guidance": 3,
    "recovery": 1,
    "fairness": 1,
}
_DEFAULT_STEPS = {
    "overhead": 20,
    "load": 1,
    "switch": 4,
    "lora": 8,
    "controlnet": 20,
    "guidance": 20,
    "recovery": 20,
    "fairness": 40,
}
_DEFAULT_SIZE_PX = {"fairness": 64}
_USUAL_SIZE_PX = 128
_DEFAULT_SECONDS = 25.0
_DEFAULT_SIMULATED_SECONDS = 600.0


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of all measurements."""
    parser.add_argument(
        "measurement",
        choices=list(MEASUREMENTS),
        help="; ".join(f"{name}: {what}" for name, what in MEASUREMENTS.items()),
    )
    models = demo_models_folder()
    parser.add_argument(
        "--checkpoint",
        type=Path,
        default=models / "checkpoints" / DEMO_CHECKPOINT,
        metavar="FILE",
        help="default: the demo model",
    )
    parser.add_argument(
        "--lora", type=Path, default=models / "loras" / DEMO_LORA, metavar="FILE", help="for `lora`"
    )
    parser.add_argument(
        "--control-net",
        type=Path,
        metavar="FILE",
        help="for `controlnet` and `recovery`: one that fits the checkpoint",
    )
    parser.add_argument("--rounds", type=int, help=f"measured rounds (default: {_shown(_DEFAULT_ROUNDS)})")
    parser.add_argument("--steps", type=int, help=f"denoising steps (default: {_shown(_DEFAULT_STEPS)})")
    parser.add_argument(
        "--size",
        type=int,
        metavar="PIXELS",
        help=f"side of the picture (default: {_USUAL_SIZE_PX}, {_shown(_DEFAULT_SIZE_PX)})",
    )
    parser.add_argument("--threads", type=int, default=1, help="torch threads, the same on both sides")
    parser.add_argument(
        "--link-gbps",
        type=float,
        default=0.0,
        metavar="GBIT",
        help="gigabits a second of the emulated link to the device, for `load` and `switch`"
        " (default: one with which loading takes 3 and 8 times as long as computing)",
    )
    parser.add_argument("--previews", action="store_true", help="for `overhead`: also with previews")
    _add_recovery_flags(parser)
    _add_fairness_flags(parser)
    of_servers.add_flags(parser)


def _add_fairness_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--policy",
        choices=POLICY_NAMES,
        action="append",
        help="for `fairness`: one to measure; may be repeated (default: all)",
    )
    add(
        "--seconds",
        type=float,
        metavar="S",
        help=f"for `fairness`: how long each policy is measured (default: {_DEFAULT_SECONDS:g},"
        f" simulated {_DEFAULT_SIMULATED_SECONDS:g}); for `serve`: how long prompts are sent (default: 60)",
    )
    add("--slack", type=float, default=0.5, metavar="S", help="for `fairness`: as of `serve` (%(default)s)")
    add("--simulated", action="store_true", help="for `fairness`: on a virtual clock, without a server")


def _add_recovery_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--kills", type=int, default=20, help="kills, for `recovery` and `crash` (default: %(default)s)")
    add("--workers", type=int, default=2, help="for `recovery` (default: %(default)s)")
    add(
        "--checkpoint-steps",
        type=int,
        default=4,
        metavar="N",
        help="most steps between two checkpoints, for `recovery` (default: %(default)s)",
    )


def run(arguments: argparse.Namespace, _argv: Sequence[str]) -> int:
    """Measure and print; returns the exit code. Raises ConfigError for a bad flag."""
    from comfyserverless.bench.serving import tidy_at_sigterm

    with tidy_at_sigterm():
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    name: str = arguments.measurement
    if name in of_servers.MEASUREMENTS:
        return of_servers.run(arguments)
    arguments.rounds = _DEFAULT_ROUNDS[name] if arguments.rounds is None else arguments.rounds
    arguments.size = _DEFAULT_SIZE_PX.get(name, _USUAL_SIZE_PX) if arguments.size is None else arguments.size
    arguments.steps = _DEFAULT_STEPS[name] if arguments.steps is None else arguments.steps
    for flag in ("rounds", "steps", "size", "threads", "kills", "workers", "checkpoint_steps"):
        if getattr(arguments, flag) < 1:
            raise ConfigError(f"--{flag.replace('_', '-')} must be at least 1")
    if not 0 <= arguments.link_gbps < float("inf"):
        raise ConfigError("--link-gbps must be 0 or more")
    if name == "load":
        return _run_apart(arguments, {"link_gbps": arguments.link_gbps})
    if name == "fairness" and arguments.simulated:
        return _simulate_fairness(arguments)
    checkpoint = _file("--checkpoint", arguments.checkpoint)
    if name in _OVER_HTTP:
        return _OVER_HTTP[name](arguments, checkpoint)
    options: dict[str, object] = {
        "checkpoint": str(checkpoint),
        "steps": arguments.steps,
        "size_px": arguments.size,
    }
    if name == "switch":
        options["link_gbps"] = arguments.link_gbps
    else:
        options["lora"] = str(_file("--lora", arguments.lora))
    return _run_apart(arguments, options)


def _run_overhead(arguments: argparse.Namespace, checkpoint: Path) -> int:
    from comfyserverless.bench.overhead import Workload, measure
    from comfyserverless.bench.report import show

    workload = Workload(checkpoint, arguments.steps, arguments.size, arguments.threads)
    show(measure(workload, arguments.rounds, with_previews=arguments.previews))
    return 0


def _control_net_of(arguments: argparse.Namespace, checkpoint: Path) -> Path | None:
    """Return the ControlNet that is asked for, else the demo model's if that is the checkpoint."""
    if arguments.control_net is not None:
        return _file("--control-net", arguments.control_net)
    demo = demo_models_folder() / "controlnet" / DEMO_CONTROLNET
    return demo.resolve() if checkpoint.name == DEMO_CHECKPOINT and demo.is_file() else None


def _run_controlnet(arguments: argparse.Namespace, checkpoint: Path) -> int:
    from comfyserverless.bench.controlnet import measure, show
    from comfyserverless.bench.workload import Workload

    control_net = _control_net_of(arguments, checkpoint)
    if control_net is None:
        raise ConfigError("--control-net is missing: a ControlNet that fits the checkpoint")
    workload = Workload(checkpoint, arguments.steps, arguments.size, arguments.threads)
    show(measure(workload, control_net, arguments.rounds))
    return 0


def _run_guidance(arguments: argparse.Namespace, checkpoint: Path) -> int:
    from comfyserverless.bench.guidance.gain import measure, show
    from comfyserverless.bench.workload import Workload

    show(measure(Workload(checkpoint, arguments.steps, arguments.size, arguments.threads), arguments.rounds))
    return 0


def _run_recovery(arguments: argparse.Namespace, checkpoint: Path) -> int:
    from comfyserverless.bench.recovery import RecoveryOptions, measure, show

    controlnet = _control_net_of(arguments, checkpoint)
    result = measure(
        RecoveryOptions(
            str(checkpoint),
            "" if controlnet is None else str(controlnet),
            kills=arguments.kills,
            checkpoint_steps=arguments.checkpoint_steps,
            workers=arguments.workers,
            steps=arguments.steps,
            size_px=arguments.size,
            threads=arguments.threads,
        )
    )
    show(result)
    return 0 if result["completed"] == result["identical"] == result["kills"] else 1


def _run_fairness(arguments: argparse.Namespace, checkpoint: Path) -> int:
    from comfyserverless.bench.fairness.measure import FairnessOptions, measure
    from comfyserverless.bench.fairness.results import is_as_promised, show
    from comfyserverless.bench.workload import Workload

    policies, seconds = _fairness_span(arguments)
    workload = Workload(checkpoint, arguments.steps, arguments.size, arguments.threads)
    options = FairnessOptions(workload, policies, arguments.slack, seconds)
    result = measure(options, lambda line: print(line, file=sys.stderr, flush=True))
    show(result)
    return 0 if is_as_promised(result) else 1


def _simulate_fairness(arguments: argparse.Namespace) -> int:
    from comfyserverless.bench.fairness.results import is_as_promised, show
    from comfyserverless.bench.fairness.simulated import play

    policies, seconds = _fairness_span(arguments)
    result = play(policies, arguments.slack, seconds)
    show(result)
    return 0 if is_as_promised(result) else 1


def _fairness_span(arguments: argparse.Namespace) -> tuple[Sequence[str], float]:
    """Return the policies to measure, and for how long. Raises ConfigError."""
    default_s = _DEFAULT_SIMULATED_SECONDS if arguments.simulated else _DEFAULT_SECONDS
    seconds = default_s if arguments.seconds is None else arguments.seconds
    if not 0 < seconds < float("inf"):
        raise ConfigError("--seconds must be more than 0")
    if not 0 <= arguments.slack < float("inf"):
        raise ConfigError("--slack must be 0 or more")
    return list(dict.fromkeys(arguments.policy or POLICY_NAMES)), seconds


#: measurements of whole servers, which are processes of their own anyway
_OVER_HTTP: Mapping[str, Callable[[argparse.Namespace, Path], int]] = {
    "overhead": _run_overhead,
    "controlnet": _run_controlnet,
    "guidance": _run_guidance,
    "recovery": _run_recovery,
    "fairness": _run_fairness,
}


def _run_apart(arguments: argparse.Namespace, options: Mapping[str, object]) -> int:
    """Measure in a process of its own, as the number of threads must be known before torch is imported."""
    given = {"rounds": arguments.rounds, "threads": arguments.threads, **options}
    command = [sys.executable, "-m", f"comfyserverless.bench.{arguments.measurement}", json.dumps(given)]
    env = os.environ | {"OMP_NUM_THREADS": str(arguments.threads), "OMP_WAIT_POLICY": "PASSIVE"}
    return subprocess.run(command, env=env, check=False).returncode


def _file(flag: str, path: Path) -> Path:
    resolved = path.resolve()
    if not resolved.is_file():
        raise ConfigError(f"{flag} {resolved}: there is no such file")
    return resolved


def _shown(defaults: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in defaults.items())
