"""Find annotated names of clients, and choose names for files that packs save.

No name leads out of its base folder: with accounts, what lies beside it belongs to others.
"""

from __future__ import annotations

import os
import re
import time

from comfyserverless.host.bridge import bridge

_TOKENS = {
    "%year%": "%Y",
    "%month%": "%m",
    "%day%": "%d",
    "%hour%": "%H",
    "%minute%": "%M",
    "%second%": "%S",
}


def base_folder(kind: str) -> str | None:
    """Return the folder that `input`, `output` or `temp` names for whoever runs now; None for other words."""
    places = bridge().places
    known = {"input": places.input, "output": places.output, "temp": places.temp}
    return str(known[kind]) if kind in known else None


def split_annotation(name: str) -> tuple[str, str | None]:
    """Return a name without its ` [output]`, ` [input]` or ` [temp]`, and the word in it, if there is one."""
    for kind in ("output", "input", "temp"):
        if name.endswith(f"[{kind}]"):
            return name[: -len(kind) - 3], kind
    return name, None


def join_inside(base: str, name: str) -> str:
    """Join a name to its base folder. Raises ValueError if that leads out of it."""
    path = os.path.join(base, name)
    root, real = os.path.realpath(base), os.path.realpath(path)
    if os.path.commonpath((root, real)) != root:
        raise ValueError(f"{name!r} lies outside of its folder")
    return path


def save_path(prefix: str, base: str, width_px: int = 0, height_px: int = 0) -> tuple[str, str, int, str, str]:
    """Return (folder, name, counter, subfolder, prefix) for files that are to be saved below `base`.

    The folder is made. Raises ValueError if the prefix leads out of the base folder.
    """
    if "%" in prefix:
        prefix = prefix.replace("%width%", str(width_px)).replace("%height%", str(height_px))
        now = time.localtime()
        for token, code in _TOKENS.items():
            prefix = prefix.replace(token, time.strftime(code, now))
    subfolder, name = os.path.split(os.path.normpath(prefix))
    folder = os.path.join(base, subfolder)
    root = os.path.realpath(base)
    if os.path.commonpath((root, os.path.realpath(folder))) != root:
        raise ValueError(f"Saving outside the output folder is not allowed: {prefix!r}")
    os.makedirs(folder, exist_ok=True)
    return folder, name, _next_counter(folder, name), subfolder, prefix


def _next_counter(folder: str, name: str) -> int:
    pattern = re.compile(rf"{re.escape(name)}_(\d+)_", re.IGNORECASE if os.name == "nt" else 0)
    numbers = (pattern.match(entry) for entry in os.listdir(folder))
    return max((int(match[1]) for match in numbers if match), default=0) + 1
