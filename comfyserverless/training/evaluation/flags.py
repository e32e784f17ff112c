"""The flags of `comfyserverless demo evaluate`: let a server draw prompts, and judge the pictures."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from comfyserverless.core.errors import ConfigError
from comfyserverless.demo.places import DEMO_CHECKPOINT

_MOST_PROMPTS = 10_000
_OTHERS_SHARE = 5
"""Questions for single objects for each question of another category."""


def add_evaluate_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the evaluation."""
    add = parser.add_argument
    add("--prompts", type=int, default=60, metavar="N", help="pictures of single objects to ask for")
    add("--all", action="store_true", help="also pairs, counts, places, empty pictures and other sizes")
    add("--seed", type=int, default=0, help="another seed, other prompts and other noise")
    add("--checkpoint", default=DEMO_CHECKPOINT, metavar="NAME", help="default: the demo model")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--server", metavar="URL", help="a running server (default: start one, and end it after)"
    )
    where.add_argument(
        "--models-dir", type=Path, metavar="DIR", help="models folder for the server that is started"
    )
    add("--sheet", type=Path, metavar="FILE.png", help="write the pictures, prompts and readings as one image")
    add("--json", action="store_true", help="print the last line only: one JSON object")


def run_evaluate(arguments: argparse.Namespace, _argv: Sequence[str]) -> int:
    """Ask, judge and print; returns 1 when a bar is missed, 2 when nothing was drawn. Raises ConfigError."""
    _check(arguments)
    from comfyserverless.bench.serving import BenchError
    from comfyserverless.training.evaluation.asking import AskingError

    try:
        return _evaluate(arguments)
    except (AskingError, BenchError) as exc:
        print(f"comfyserverless: {exc}", file=sys.stderr)
        return 2


def _evaluate(arguments: argparse.Namespace) -> int:
    from comfyserverless.training.evaluation.asking import server_url
    from comfyserverless.training.evaluation.examining import examine
    from comfyserverless.training.evaluation.questions import more_questions, single_questions
    from comfyserverless.training.evaluation.report import summary, table
    from comfyserverless.training.evaluation.sheet import save_sheet

    questions = single_questions(arguments.prompts, arguments.seed)
    if arguments.all:
        questions += more_questions(max(1, arguments.prompts // _OTHERS_SHARE), arguments.seed)
    with server_url(arguments.server, arguments.models_dir) as url:
        answers = examine(questions, url, arguments.checkpoint)
    figures = summary(answers, arguments.checkpoint, arguments.seed)
    if not arguments.json:
        print(table(answers))
    print(json.dumps(figures))
    if arguments.sheet is not None:  # last: what was found is not lost with a full disk
        try:
            save_sheet(answers, arguments.sheet)
        except OSError as exc:
            raise ConfigError(f"--sheet {arguments.sheet}: cannot be written: {exc.strerror or exc}") from exc
    return 0 if figures["passed"] else 1


def _check(arguments: argparse.Namespace) -> None:
    if not 1 <= arguments.prompts <= _MOST_PROMPTS:
        raise ConfigError(f"--prompts {arguments.prompts}: allowed are 1 to {_MOST_PROMPTS}")
    if arguments.seed < 0:
        raise ConfigError(f"--seed {arguments.seed}: must not be negative")
    if arguments.models_dir is not None and not arguments.models_dir.is_dir():
        raise ConfigError(f"--models-dir {arguments.models_dir}: there is no such folder")
    sheet: Path | None = arguments.sheet
    if sheet is None:
        return
    if sheet.suffix != ".png":
        raise ConfigError(f"--sheet {sheet}: must end in .png")
    if not sheet.resolve().parent.is_dir():
        raise ConfigError(f"--sheet {sheet}: there is no folder {sheet.parent}")
    if sheet.is_dir():
        raise ConfigError(f"--sheet {sheet}: is a folder")
    if not os.access(sheet if sheet.exists() else sheet.resolve().parent, os.W_OK):
        raise ConfigError(f"--sheet {sheet}: may not be written")
