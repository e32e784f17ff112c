"""Read a file only while it is the one that was named: a picture must never mix an old and a new version.

Handles name files by size and time. What is loaded under a handle is kept under it, and other parts of the same
file are loaded later, so a file that was replaced in between has to be refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from comfyserverless.core.errors import ModelFileError
from comfyserverless.core.values import FileRef
from comfyserverless.models.reading.weights import Weights, open_weights


@contextmanager
def opened(file: FileRef) -> Iterator[Weights]:
    """Open a model file for loading within the block.

    Raises ModelFileError, naming the file, if it is missing, damaged, or another one than `file` names, also if
    it becomes another one meanwhile. A reference without size and time names whatever lies there.
    """
    _check(file)
    try:
        yield open_weights(file.path)
    except (ArithmeticError, LookupError, TypeError, ValueError) as exc:
        _check(file)
        raise ModelFileError(f"{file.path}: its tensors do not make up a model: {exc!r}") from exc
    except ModelFileError:
        _check(file)
        raise
    _check(file)


def _check(file: FileRef) -> None:
    """Raise ModelFileError if the file at the path has another size or time than the reference says."""
    if not (file.size_bytes or file.mtime_ns):
        return
    try:
        status = os.stat(file.path)
    except OSError as exc:
        raise ModelFileError(f"{file.path}: cannot be read: {exc.strerror}") from exc
    if (status.st_size, status.st_mtime_ns) != (file.size_bytes, file.mtime_ns):
        raise ModelFileError(f"{file.path}: was replaced while this prompt used it; run the prompt again")
