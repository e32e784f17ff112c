"""The flags of `comfyserverless demo`: train the demo models, or have a server's pictures judged."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from comfyserverless.core.errors import ConfigError

_MOST_PROCESSES = 64


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands and their flags."""
    from comfyserverless.training.evaluation.flags import add_evaluate_flags

    actions = parser.add_subparsers(dest="action", required=True)
    train = actions.add_parser("train", help="train checkpoint, LoRA, ControlNet and embedding from nothing")
    train.add_argument(
        "--out", type=Path, default=Path("demo_models"), metavar="DIR", help="models folder to write into"
    )
    train.add_argument(
        "--work", type=Path, metavar="DIR", help="states to go on from (default: work/ in the models folder)"
    )
    train.add_argument("--seed", type=int, default=0, help="another seed, another set of examples")
    train.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="default: one per core"
    )
    train.add_argument("--smoke", action="store_true", help="a few steps of every stage, to see that all works")
    add_evaluate_flags(actions.add_parser("evaluate", help="let a server draw prompts, and judge the pictures"))


def run(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Do what was asked; returns the exit code. Raises ConfigError for a bad flag."""
    if arguments.action == "evaluate":
        from comfyserverless.training.evaluation.flags import run_evaluate

        return run_evaluate(arguments, argv)
    return _train(arguments)


def _train(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.processes <= _MOST_PROCESSES:
        raise ConfigError(f"--processes {arguments.processes}: allowed are 1 to {_MOST_PROCESSES}")
    if arguments.seed < 0:
        raise ConfigError(f"--seed {arguments.seed}: must not be negative")
    out = arguments.out.resolve()
    work = (arguments.work or out / "work").resolve()
    for folder in (out, work):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise ConfigError(f"{folder}: cannot be made: {exc.strerror}") from exc
    from comfyserverless.training.pipeline import Job
    from comfyserverless.training.recipe import FULL, SMOKE

    _train_together(Job(SMOKE if arguments.smoke else FULL, work, out, arguments.seed), arguments.processes)
    print(f"wrote {out}: serve it with `comfyserverless serve --models-dir {out}`")
    return 0


def _train_together(job: object, processes: int) -> None:
    from torch.multiprocessing.spawn import spawn

    from comfyserverless.training.pipeline import train_in_crew

    with tempfile.TemporaryDirectory() as folder:
        meeting = Path(folder) / "meeting"
        spawn(train_in_crew, (processes, job, meeting), nprocs=processes)
