"""Read the values of command line flags; what cannot work is an argparse error that says why."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence

from comfyserverless.core.config import LEAST_GIVEN_ARENA_BYTES
from comfyserverless.core.errors import ConfigError

_MIB = 1 << 20
SPLIT_GUIDANCE = (
    "evaluate the negative prompt in calls of its own, on another worker if one is free; auto: where that takes"
    " hardly longer on one worker, measured once for a model and size (default: %(default)s;"
    " `comfyserverless bench guidance` tells whether it pays)"
)
_MAX_PORT = 65_535
_MIN_TOKEN_CHARACTERS = 16
_MAX_TOKEN_CHARACTERS = 4096
_MAX_PICTURE_PX = 16_384
_MAX_PROCESSES = 256
"""Most workers, and most threads of one: beyond it a slip of the finger, which would take the machine down."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])(?:i?B)?", re.IGNORECASE)
_ADDRESS = re.compile(r"\b(postgres(?:ql)?://).*", re.DOTALL)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def number(text: str, minimum: float) -> float:
    """Read a number of at least a minimum."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not minimum <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is less than {minimum:g}, or not finite")
    return value


def amount(text: str) -> float:
    """Read a number that is not negative."""
    return number(text, 0)


def positive(text: str) -> float:
    """Read a number above 0."""
    value = number(text, 0)
    if value == 0:
        raise argparse.ArgumentTypeError("must be more than 0")
    return value


def count(text: str) -> int:
    """Read a whole number that is not negative."""
    value = number(text, 0)
    if value != int(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(value)


def pixels(text: str) -> int:
    """Read the side of a picture."""
    value = at_most(text, _MAX_PICTURE_PX)
    if value == 0:
        raise argparse.ArgumentTypeError("must be more than 0")
    return value


def at_most(text: str, maximum: int) -> int:
    """Read a whole number up to a maximum."""
    value = count(text)
    if value > maximum:
        raise argparse.ArgumentTypeError(f"{value} is more than {maximum}")
    return value


def size_bytes(text: str) -> int:
    """Read a size like `2G`, `1.5GiB` or `512M`; units are powers of 1024, and one is required."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write it like 512M or 2G")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def arena_bytes(text: str) -> int:
    """Read the size of an arena."""
    value_bytes = size_bytes(text)
    if value_bytes < LEAST_GIVEN_ARENA_BYTES:
        raise argparse.ArgumentTypeError(f"{text} is less than {LEAST_GIVEN_ARENA_BYTES // _MIB}M")
    return value_bytes


def steps_or_auto(text: str) -> int | None:
    """Read a number of steps; None for `auto`."""
    return None if text == "auto" else count(text)


def port(text: str) -> int:
    """Read a TCP port; 0 stands for a free one."""
    return at_most(text, _MAX_PORT)


def processes(text: str) -> int:
    """Read a number of processes or threads."""
    return at_most(text, _MAX_PROCESSES)


def database(text: str) -> str:
    """Return a records file as an absolute path; an address, empty and `memory` stay as they are.

    Raises ConfigError for an address of anything else than PostgreSQL.
    """
    if _ADDRESS.match(text) or text in ("", "memory"):
        return text
    if "://" in text:
        kind = text.partition("://")[0]
        raise ConfigError(f"--database {kind}://...: only files, `memory` and postgresql:// are supported")
    return os.path.abspath(text)


def token_in_file(path: str) -> str:
    """Read the token that a file holds; white space around it does not count."""
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(_MAX_TOKEN_CHARACTERS).strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise argparse.ArgumentTypeError(f"{path} cannot be read as text: {exc}") from None
    if len(token) < _MIN_TOKEN_CHARACTERS or not token.isprintable():
        raise argparse.ArgumentTypeError(
            f"{path} holds no token: {_MIN_TOKEN_CHARACTERS} or more characters in one line"
        )
    return token


_SEEN_BY_PACKS = (
    "listen",
    "port",
    "enable_cors_header",
    "max_upload_size",
    "enable_compress_response_body",
    "base_directory",
    "output_directory",
    "input_directory",
    "temp_directory",
    "user_directory",
    "preview_method",
    "preview_size",
    "cache_classic",
    "cache_none",
    "disable_metadata",
    "disable_all_custom_nodes",
    "whitelist_custom_nodes",
    "multi_user",
    "verbose",
)


def pack_flags(arguments: argparse.Namespace) -> dict[str, object]:
    """Return what packs find in `comfy.cli_args.args`: the flags that ComfyUI has, too, under its names."""
    given = {name: getattr(arguments, name, None) for name in _SEEN_BY_PACKS}
    plain = {
        name: os.path.abspath(value) if isinstance(value, os.PathLike) else value
        for name, value in given.items()
        if value is not None
    }
    return {**plain, "cache_lru": arguments.cache_lru or 0}


def without_addresses(argv: Sequence[str]) -> list[str]:
    """Return a command line that may be shown: addresses of databases may hold a password."""
    return [_ADDRESS.sub(r"\1...", argument) for argument in argv]
