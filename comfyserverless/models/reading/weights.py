"""Open a model file and load its tensors one by one.

Safetensors files are read through their checked header; nothing is mapped, so a file that is replaced
while it is in use cannot change or crash what was loaded, and what is loaded later is refused. Any other file
goes through torch's weights-only loader (see pickles), which runs no code of the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import torch

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.reading.header import TensorInfo, read_header
from comfyserverless.models.reading.pickles import read_pickle

Version = tuple[int, int]
"""Size in bytes and time of change in nanoseconds of a file."""

PICKLE_SUFFIXES = frozenset({".ckpt", ".pt", ".pt2", ".pth", ".bin", ".pkl"})
"""Files that torch.save wrote; all others are safetensors."""


class Weights:
    """The tensors of one file, or those below a prefix; names are without the prefix.

    Loading returns fresh memory that the caller owns. version: size and time of the file when its header was
    read; tensors of another version are refused. None does not look.
    """

    def __init__(
        self,
        path: str,
        infos: Mapping[str, TensorInfo],
        stored: Mapping[str, torch.Tensor] | None = None,
        version: Version | None = None,
    ) -> None:
        self.path = path
        self.version = version
        self._infos = dict(infos)
        self._stored = stored
        self._names = {name: name for name in self._infos}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def info(self, name: str) -> TensorInfo:
        """Return type and shape of a tensor. Raises ModelFileError if the file lacks it."""
        if name not in self._names:
            raise ModelFileError(f"{self.path}: lacks the tensor {name!r}")
        return self._infos[self._names[name]]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor. Raises ModelFileError if the file lacks it."""
        return self.info(name).shape

    def length(self, name: str, dim: int) -> int:
        """Return one side of a tensor's shape. Raises ModelFileError if the file lacks it or the side."""
        shape = self.shape(name)
        if dim >= len(shape):
            raise ModelFileError(f"{self.path}: tensor {name!r} has the shape {list(shape)}: sides are missing")
        return shape[dim]

    def below(self, prefix: str) -> Weights:
        """Return the tensors whose names start with `prefix`, named without it."""
        return self.renamed({name: name.removeprefix(prefix) for name in self if name.startswith(prefix)})

    def renamed(self, names: Mapping[str, str]) -> Weights:
        """Return the tensors that `names` lists (name here -> new name)."""
        part = Weights(self.path, {}, self._stored, self.version)
        part._infos = self._infos
        part._names = {new: self._names[old] for old, new in names.items()}
        return part

    def load(self, name: str, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Load one tensor on the CPU, in its own type or cast to `dtype`.

        Raises ModelFileError if the file lacks it or has shrunk since it was opened.
        """
        info = self.info(name)
        if self._stored is not None:
            tensor = self._stored[self._names[name]]
            return tensor.clone() if dtype in (None, tensor.dtype) else tensor.to(dtype)
        tensor = torch.empty(info.shape, dtype=info.dtype)
        with self.reading() as file:
            _read_into(file, self.path, info, tensor)
        return tensor if dtype is None else tensor.to(dtype)

    @contextmanager
    def reading(self) -> Iterator[int]:
        """Open the file for `load_into`; yields its descriptor (-1 for pickles, which are open already).

        Raises ModelFileError if the file is gone or another one than its header was read from, also if it
        becomes another one within the block.
        """
        if self._stored is not None:
            yield -1
            return
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as exc:
            raise ModelFileError(f"{self.path}: cannot be read: {exc.strerror}") from exc
        try:
            self._check_version(file)
            yield file
            self._check_version(file)
        finally:
            os.close(file)

    def load_into(
        self, file: int, name: str, target: torch.Tensor, rows: tuple[int, int] | None = None
    ) -> None:
        """Load one tensor, or rows of it, into contiguous memory of as many elements, cast to its type.

        file: of `reading`. Raises ModelFileError if the file lacks the tensor or has shrunk.
        """
        info = self.info(name)
        if self._stored is not None:
            tensor = self._stored[self._names[name]]
            target.copy_((tensor if rows is None else tensor[slice(*rows)]).reshape(target.shape))
            return
        if rows is not None:
            row_bytes = info.size_bytes // info.shape[0]
            begin, end = rows
            info = replace(
                info,
                shape=(end - begin, *info.shape[1:]),
                begin_bytes=info.begin_bytes + begin * row_bytes,
                size_bytes=(end - begin) * row_bytes,
            )
        if target.dtype == info.dtype:
            _read_into(file, self.path, info, target)
        else:
            staging = torch.empty(target.shape, dtype=info.dtype)
            _read_into(file, self.path, info, staging)
            target.copy_(staging)

    def check_real(self, name: str) -> None:
        """Raise ModelFileError for whole numbers.

        Those are quantised weights, and read as plain ones they give pictures of nothing.
        """
        if not (kind := self.info(name).dtype).is_floating_point:
            raise ModelFileError(
                f"{self.path}: tensor {name!r} has the type {kind}: quantised weights are not supported"
                " (supported: float16, bfloat16, float32, float64, float8)"
            )

    def _check_version(self, file: int) -> None:
        status = os.fstat(file)
        if self.version not in (None, (status.st_size, status.st_mtime_ns)):
            raise ModelFileError(f"{self.path}: was replaced while this prompt used it; run the prompt again")


def open_weights(path: str) -> Weights:
    """Open a model file by its suffix: pickles for PICKLE_SUFFIXES, else safetensors.

    Raises ModelFileError, naming the file, if it is missing or not what its suffix says.
    """
    if os.path.splitext(path)[1].lower() in PICKLE_SUFFIXES:
        tensors = read_pickle(path)
        return Weights(
            path, {name: TensorInfo(t.dtype, tuple(t.shape)) for name, t in tensors.items()}, tensors
        )
    version = _version(path)
    return Weights(path, read_header(path).tensors, version=version)


def _version(path: str) -> Version | None:
    """Return what tells versions of a file apart; None if it cannot be read, which reading it will tell."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _read_into(file: int, path: str, info: TensorInfo, target: torch.Tensor) -> None:
    """Read a tensor's bytes into contiguous memory of its type; holds no lock of Python's while it reads."""
    view = memoryview(target.view(-1).view(torch.uint8).numpy().data)
    done = 0
    try:
        while done < info.size_bytes:
            count = os.preadv(file, [view[done:]], info.begin_bytes + done)
            if count == 0:
                raise ModelFileError(f"{path}: truncated while it was being read")
            done += count
    except OSError as exc:
        raise ModelFileError(f"{path}: cannot be read: {exc.strerror}") from exc
