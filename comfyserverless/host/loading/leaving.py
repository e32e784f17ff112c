"""Say which pack it was when code of one ends the process of all packs with `os._exit`.

Nobody could tell afterwards: such an end leaves no trace. Code that a pack runs in a fork of this process may
end that fork as it likes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn


def watch_exits(folders: Sequence[str], tell: Callable[[str, str], None]) -> None:
    """Let `os._exit` tell first which pack of these folders calls it, and where."""
    leave, pid = os._exit, os.getpid()
    roots = [os.path.realpath(folder) for folder in folders]

    def exit_and_tell(status: int) -> NoReturn:
        if os.getpid() == pid:
            found = _caller(sys._getframe(1), roots)
            if found is not None:
                tell(*found)
        leave(status)

    os._exit = exit_and_tell


def _caller(frame: FrameType | None, roots: Sequence[str]) -> tuple[str, str] | None:
    """Return the pack whose code is nearest to a frame, and the place in it; None if it is no pack's."""
    while frame is not None:
        path = os.path.realpath(frame.f_code.co_filename)
        for root in roots:
            if path.startswith(root + os.sep):
                inside = os.path.relpath(path, root)  # where packs lie is not for everybody
                name = inside.split(os.sep)[0].removesuffix(".py")
                return name, f"os._exit in {inside}, line {frame.f_lineno}"
        frame = frame.f_back
    return None
