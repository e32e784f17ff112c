"""Declare the flags of `comfyserverless bench`, and start the measurement that is asked for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from comfyserverless.control.files import demo_models_folder
from comfyserverless.core.errors import ConfigError
from comfyserverless.demo.places import DEMO_CHECKPOINT


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of all measurements."""
    parser.add_argument(
        "measurement", choices=["overhead"], help="overhead: the whole server against a plain loop"
    )
    default = demo_models_folder() / "checkpoints" / DEMO_CHECKPOINT
    parser.add_argument(
        "--checkpoint", type=Path, default=default, metavar="FILE", help="default: the demo model"
    )
    parser.add_argument(
        "--rounds", type=int, default=9, help="measured pairs of runs, after one unmeasured pair"
    )
    parser.add_argument("--steps", type=int, default=20, help="denoising steps of each picture")
    parser.add_argument("--size", type=int, default=128, metavar="PIXELS", help="side of the picture")
    parser.add_argument("--threads", type=int, default=1, help="torch threads, the same on both sides")


def run(arguments: argparse.Namespace, _argv: Sequence[str]) -> int:
    """Measure and print; returns the exit code. Raises ConfigError for a bad flag."""
    from comfyserverless.bench.overhead import Workload, measure
    from comfyserverless.bench.report import show

    checkpoint: Path = arguments.checkpoint.resolve()
    if not checkpoint.is_file():
        raise ConfigError(f"--checkpoint {checkpoint}: there is no such file")
    for flag in ("rounds", "steps", "size", "threads"):
        if getattr(arguments, flag) < 1:
            raise ConfigError(f"--{flag} must be at least 1")
    workload = Workload(checkpoint, arguments.steps, arguments.size, arguments.threads)
    show(measure(workload, arguments.rounds))
    return 0
