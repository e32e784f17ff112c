"""Declare the flags of the measurements of servers, and start the one that is asked for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from comfyserverless.core.errors import ConfigError

MEASUREMENTS: Mapping[str, str] = {
    "serve": "a server with many clients and many prompts a second, or with a long queue",
    "crash": "a server that is killed at random moments under load",
}
_GRAPHS = ("new", "cached")
_DEFAULT_SECONDS = 60.0


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only these measurements have; `--seconds` and `--kills` they share."""
    add = parser.add_argument
    add("--clients", type=int, default=1_000, metavar="N", help="for `serve`: websockets (%(default)s)")
    add("--rate", type=float, default=200.0, metavar="N", help="for `serve`: prompts a second (%(default)g)")
    add(
        "--graph",
        choices=_GRAPHS,
        default="new",
        help="for `serve`: every prompt makes a small picture of its own, or all ask for the same one"
        " (default: %(default)s)",
    )
    add("--queue", type=int, metavar="N", help="for `serve`: list and change a queue of N prompts instead")
    add("--database", default="", metavar="ADDRESS", help="for `serve` and `crash`: as of `serve`")
    add("--seed", type=int, default=0, metavar="N", help="for `crash`: of the moments (%(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; returns the exit code. Raises ConfigError for a bad flag."""
    if arguments.measurement == "crash":
        return _run_crash(arguments)
    return _run_load(arguments) if arguments.queue is None else _run_queue(arguments)


def _run_load(arguments: argparse.Namespace) -> int:
    from comfyserverless.bench.server.load import LoadOptions, measure, show

    seconds = _DEFAULT_SECONDS if arguments.seconds is None else arguments.seconds
    for flag, value in (("clients", arguments.clients), ("rate", arguments.rate), ("seconds", seconds)):
        if not 0 < value < float("inf"):
            raise ConfigError(f"--{flag} must be more than 0")
    result = measure(
        LoadOptions(arguments.clients, arguments.rate, seconds, arguments.graph, _server_flags(arguments))
    )
    show(result)
    return 0 if not (result["errors"] or result["clients_cut_off"] or result["ws_lost"]) else 1


def _run_queue(arguments: argparse.Namespace) -> int:
    from comfyserverless.bench.server.queue import LEAST, QueueOptions, measure, show

    if arguments.queue < LEAST:
        raise ConfigError(f"--queue must be at least {LEAST}")
    result = measure(QueueOptions(arguments.queue, flags=_server_flags(arguments)))
    show(result)
    return 0 if result["slowest_ms"] < result["bar_ms"] else 1


def _run_crash(arguments: argparse.Namespace) -> int:
    from comfyserverless.bench.server.crash import CrashOptions, is_clean, measure, show

    if arguments.kills < 1:
        raise ConfigError("--kills must be at least 1")
    result = measure(CrashOptions(arguments.kills, arguments.seed, arguments.database))
    show(result)
    return 0 if is_clean(result) else 1


def _server_flags(arguments: argparse.Namespace) -> tuple[str, ...]:
    return ("--database", arguments.database) if arguments.database else ()
