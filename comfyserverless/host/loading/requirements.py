"""Say which Python packages a pack wants that are not installed; nothing is ever installed from here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import metadata


def missing_requirements(folder: str) -> tuple[str, ...]:
    """Return the lines of a pack's requirements.txt that what is installed does not meet."""
    from packaging.requirements import InvalidRequirement, Requirement

    found: list[str] = []
    for line in _lines(os.path.join(folder, "requirements.txt")):
        try:
            wanted = Requirement(line)
        except InvalidRequirement:
            continue  # an address, a path or an option: only pip can tell
        if wanted.marker is not None and not wanted.marker.evaluate():
            continue
        try:
            version = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            found.append(line)
            continue
        if not wanted.specifier.contains(version, prereleases=True):
            found.append(line)
    return tuple(dict.fromkeys(found))


def pip_line(missing: tuple[str, ...]) -> str:
    """Return the command that installs what is missing."""
    words = (f'"{each}"' if set(each) & set("<>=!~;[ ") else each for each in missing)
    return f"pip install {' '.join(words)}"


def _lines(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        text = line.split(" #")[0].strip()
        if text and not text.startswith(("#", "-")):
            yield text
