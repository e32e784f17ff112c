"""Declare the flags of `run`; imports nothing heavy."""

from __future__ import annotations

import argparse
from pathlib import Path

from comfyserverless import flag_values as values

DEFAULT_SERVER = "http://127.0.0.1:8188"
TOKEN_VARIABLE = "COMFYSERVERLESS_TOKEN"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `run`."""
    add = parser.add_argument
    add("file", type=Path, help="a workflow (JSON of the page or of the API), or a picture that holds one")
    add(
        "--set",
        action="append",
        default=[],
        metavar="NODE.INPUT=VALUE",
        help="change an input; NODE is an id, title or class that one node has; VALUE @FILE uploads a file",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--server", default=DEFAULT_SERVER, metavar="URL", help="the server (default: %(default)s)"
    )
    where.add_argument(
        "--local", action="store_true", help="start a server for this run, and stop it afterwards"
    )
    add("--output", type=Path, default=Path(), metavar="DIR", help="where the files go (default: this folder)")
    add("--token", metavar="TOKEN", help=f"access token of the server (default: ${TOKEN_VARIABLE})")
    add(
        "--timeout",
        type=values.positive,
        metavar="S",
        help="give up and take the prompt back after so many seconds",
    )
    add("--quiet", action="store_true", help="show no progress")
    local = parser.add_argument_group("with --local")
    local.add_argument(
        "--models-directory", type=Path, metavar="DIR", help="where models are (default: ./models)"
    )
    local.add_argument("--input-directory", type=Path, metavar="DIR", help="input files (default: ./input)")
