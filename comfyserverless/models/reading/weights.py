"""Open a model file and load its tensors one by one.

Safetensors files are read through their checked header; nothing is mapped, so a file that is replaced
while it is in use cannot change or crash what was loaded. Any other file goes through torch's weights-only
loader (see pickles), which runs no code of the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import torch

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.reading.header import TensorInfo, read_header
from comfyserverless.models.reading.pickles import read_pickle

PICKLE_SUFFIXES = frozenset({".ckpt", ".pt", ".pt2", ".pth", ".bin", ".pkl"})
"""Files that torch.save wrote; all others are safetensors."""


class Weights:
    """The tensors of one file, or those below a prefix; names are without the prefix.

    Loading returns fresh memory that the caller owns.
    """

    def __init__(
        self, path: str, infos: Mapping[str, TensorInfo], stored: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        self.path = path
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
        part = Weights(self.path, {}, self._stored)
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
        tensor = _read_tensor(self.path, info)
        return tensor if dtype is None else tensor.to(dtype)

    def load_real(self, name: str, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Load one tensor of real numbers.

        Raises ModelFileError, beside `load`'s reasons, for whole numbers: those are quantised weights, and read
        as plain ones they give pictures of nothing.
        """
        if not (kind := self.info(name).dtype).is_floating_point:
            raise ModelFileError(
                f"{self.path}: tensor {name!r} has the type {kind}: quantised weights are not supported"
                " (supported: float16, bfloat16, float32, float64, float8)"
            )
        return self.load(name, dtype)


def open_weights(path: str) -> Weights:
    """Open a model file by its suffix: pickles for PICKLE_SUFFIXES, else safetensors.

    Raises ModelFileError, naming the file, if it is missing or not what its suffix says.
    """
    if os.path.splitext(path)[1].lower() in PICKLE_SUFFIXES:
        tensors = read_pickle(path)
        return Weights(
            path, {name: TensorInfo(t.dtype, tuple(t.shape)) for name, t in tensors.items()}, tensors
        )
    return Weights(path, read_header(path).tensors)


def _read_tensor(path: str, info: TensorInfo) -> torch.Tensor:
    data = torch.empty(info.size_bytes, dtype=torch.uint8)
    view = memoryview(data.numpy().data)
    done = 0
    try:
        with open(path, "rb", buffering=0) as file:
            while done < info.size_bytes:
                count = os.preadv(file.fileno(), [view[done:]], info.begin_bytes + done)
                if count == 0:
                    raise ModelFileError(f"{path}: truncated while it was being read")
                done += count
    except OSError as exc:
        raise ModelFileError(f"{path}: cannot be read: {exc.strerror}") from exc
    return data.view(info.dtype).reshape(info.shape)
