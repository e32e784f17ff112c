"""Draw JSON values that are hard to handle."""

from __future__ import annotations

import json
import random
from typing import Any

TEXTS = (
    "",
    " ",
    "0",
    "-1",
    "1e400",
    "nan",
    "true",
    "\x00",
    "\ud800",
    "a" * 5000,
    "../../etc/passwd",
    "..\\..\\x",
    "/etc/passwd",
    "C:\\x",
    "%2e%2e%2f",
    "ẞ🎨\u202e",
    "%date:yyyy%_%width%",
    "x.png [output]",
    "((((((a:1.5)",
    "(a:nan) (b:1e308) (c:-inf)",
    "embedding:tinystyle embedding:../x embedding:",
    "<script>",
    "\r\nX-A: b",
    "__proto__",
)
NUMBERS = (
    0,
    -1,
    1,
    2,
    2**31,
    2**53 + 1,
    2**63,
    2**64 - 1,
    -(2**63) - 1,
    10**40,
    0.5,
    -0.0,
    1e-320,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    float("-inf"),
)


def text(rng: random.Random) -> str:
    """Draw a text, often a nasty one."""
    if rng.random() < 0.7:
        return rng.choice(TEXTS)
    return "".join(chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x80, 0x3000)))) for _ in range(8))


def scalar(rng: random.Random) -> Any:
    """Draw a JSON value without parts."""
    return rng.choice((None, True, False, rng.choice(NUMBERS), text(rng)))


def value(rng: random.Random, depth: int = 3) -> Any:
    """Draw a JSON value."""
    kind = rng.random()
    if depth == 0 or kind < 0.5:
        return scalar(rng)
    if kind < 0.55:
        return nested(rng.choice((20, 500, 3000)))
    if kind < 0.6:
        return [0] * rng.choice((100, 20_000))
    if kind < 0.8:
        return [value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {text(rng)[:200]: value(rng, depth - 1) for _ in range(rng.randrange(4))}


def nested(depth: int) -> Any:
    """Return lists in lists."""
    result: Any = []
    for _ in range(depth):
        result = [result]
    return result


def mutate(rng: random.Random, given: Any) -> Any:
    """Return a copy of a JSON value with one place of it changed."""
    if isinstance(given, dict) and given and rng.random() < 0.85:
        key = rng.choice(list(given))
        choice = rng.random()
        if choice < 0.1:
            return {name: each for name, each in given.items() if name != key}
        if choice < 0.2:
            return {**given, text(rng)[:200]: value(rng)}
        return {**given, key: mutate(rng, given[key])}
    if isinstance(given, list) and given and rng.random() < 0.8:
        place = rng.randrange(len(given))
        return [*given[:place], mutate(rng, given[place]), *given[place + 1 :]]
    return value(rng)


def dumped(given: Any) -> bytes:
    """Return JSON; something as deep for what is too deep to be written by this process."""
    try:
        return json.dumps(given).encode()
    except RecursionError:
        return b'{"prompt": {"1": ' + b"[" * 5000 + b"]" * 5000 + b"}}"
