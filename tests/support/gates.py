"""Hold nodes and handlers of test packs up: they wait for a file until a test has seen enough."""

from __future__ import annotations

import shutil
from pathlib import Path

PACK = Path(__file__).parent / "packs" / "gates"
"""Has a node of class `Gate`, which takes `image` and the path of a `gate`."""


class Gate:
    """A file that is not there until the gate is opened; its path is what the waiting ones are told."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "gate"

    def __str__(self) -> str:
        return str(self._path)

    def install_pack(self, base: Path) -> None:
        """Give a server below `base` the node that waits."""
        shutil.copytree(PACK, base / "custom_nodes" / "gates", ignore=shutil.ignore_patterns("__pycache__"))

    def open(self) -> None:
        """Let all go on that wait, and all that come."""
        self._path.touch()
