"""The flags of `comfyserverless demo`: train the demo models, or have a server's pictures judged."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

from comfyserverless.bench.serving import tidy_at_sigterm
from comfyserverless.core.errors import ConfigError

_MOST_PROCESSES = 64
_KINDS = ("checkpoints", "loras", "controlnet", "embeddings")
"""Folders of the models folder that a training writes into."""
_ENDED_BY_SIGTERM = 128 + signal.SIGTERM


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
    with tidy_at_sigterm():
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
    for folder in (*(out / kind for kind in _KINDS), work):
        _make_folder(folder)
    from comfyserverless.training.pipeline import Job
    from comfyserverless.training.recipe import FULL, SMOKE

    recipe = SMOKE if arguments.smoke else FULL
    _claim(work, {"seed": arguments.seed, "recipe": repr(dataclasses.astuple(recipe))})
    _train_together(Job(recipe, work, out, arguments.seed), arguments.processes)
    print(f"wrote {out}: serve it with `comfyserverless serve --models-dir {out}`")
    return 0


def _make_folder(folder: Path) -> None:
    """Make a folder to write into; what cannot be written is found out now, not after an hour."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ConfigError(f"{folder}: cannot be made: {exc.strerror}") from exc
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{folder}: may not be written")


def _claim(work: Path, training: dict[str, object]) -> None:
    """Write down whose states a folder holds. Raises ConfigError if they are of another training."""
    note = work / "training.json"
    wanted = json.dumps(training)
    if note.exists() and note.read_text() != wanted and any(work.glob("*.pt")):
        raise ConfigError(
            f"{work}: holds states of a training with another --smoke or --seed, or of another version; "
            "remove it, or choose another --work"
        )
    note.write_text(wanted)


def _train_together(job: object, processes: int) -> None:
    from multiprocessing.resource_tracker import ensure_running

    from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn

    from comfyserverless.training.pipeline import ENDINGS, complaint_file, train_in_crew

    with tempfile.TemporaryDirectory(prefix="comfyserverless-demo-") as folder:
        meeting = Path(folder) / "meeting"
        # An end waits until there is a crew; its processes, deaf while they load, are ended here.
        ensure_running()  # would unblock signals at its first start
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
        crew = spawn(train_in_crew, (processes, job, meeting), nprocs=processes, join=False)
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
            while not crew.join():
                pass
        except ProcessExitedException as exc:
            raise ConfigError(f"{exc}; the same command goes on from the last saved state") from exc
        except ProcessRaisedException as exc:
            complaint = complaint_file(meeting)
            if not complaint.exists():
                raise
            raise ConfigError(complaint.read_text()) from exc
        finally:
            for process in crew.processes:
                process.kill()
                process.join()
