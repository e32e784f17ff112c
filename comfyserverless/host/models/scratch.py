"""Keep files that a pack's objects become when they travel to workers: named by the digest of what they
hold."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from comfyserverless.core.values import FileRef

_DIGEST_CHARS = 40
_folders: list[Path] = []


def install(folder: Path) -> None:
    """Say where such files lie; they live as long as the server."""
    folder.mkdir(parents=True, exist_ok=True)
    _folders[:] = [folder]


def folder() -> Path:
    """Return the folder, a new temporary one if none was installed."""
    if not _folders:
        _folders.append(Path(tempfile.mkdtemp(prefix="comfyserverless-objects-")))
    return _folders[0]


def keep(content: bytes, suffix: str) -> Path:
    """Write content once; equal content is one file. Others never see a part of it."""
    path = folder() / (hashlib.sha256(content).hexdigest()[:_DIGEST_CHARS] + suffix)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    return path


def keep_tensors(tensors: Mapping[str, Tensor]) -> FileRef:
    """Write tensors as a safetensors file, and name it."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in sorted(tensors.items())}
    return file_ref(keep(save(plain), ".safetensors"))


def file_ref(path: str | Path) -> FileRef:
    """Name a file as it is now. Raises FileNotFoundError."""
    stat = os.stat(path)
    return FileRef(os.path.abspath(path), stat.st_size, stat.st_mtime_ns)
