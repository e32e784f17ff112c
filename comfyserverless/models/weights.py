"""Open a model file and load its tensors one by one.

Safetensors files are read through their checked header; nothing is mapped, so a file that is replaced
while it is in use cannot change or crash what was loaded. Pickled files go through torch's weights-only
loader, which runs no code of the file.
"""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from comfyserverless.core.errors import ModelFileError
from comfyserverless.models.header import TensorInfo, read_header

PICKLE_SUFFIXES = frozenset({".ckpt", ".pt", ".pth", ".bin"})

_NESTING = ("state_dict", "string_to_param")
"""Where checkpoints and textual inversions keep their tensors, when not at the top."""


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


def open_weights(path: str) -> Weights:
    """Open a model file by its suffix: pickles for .ckpt .pt .pth .bin, else safetensors.

    Raises ModelFileError, naming the file, if it is missing or not what its suffix says.
    """
    if os.path.splitext(path)[1].lower() in PICKLE_SUFFIXES:
        return _open_pickle(path)
    return Weights(path, read_header(path).tensors)


def _read_tensor(path: str, info: TensorInfo) -> torch.Tensor:
    data = torch.empty(info.size_bytes, dtype=torch.uint8)
    view = memoryview(data.numpy().data)
    done = 0
    with open(path, "rb", buffering=0) as file:
        while done < info.size_bytes:
            count = os.preadv(file.fileno(), [view[done:]], info.begin_bytes + done)
            if count == 0:
                raise ModelFileError(f"{path}: truncated while it was being read")
            done += count
    return data.view(info.dtype).reshape(info.shape)


def _open_pickle(path: str) -> Weights:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except OSError as exc:
        raise ModelFileError(f"{path}: cannot be read: {exc}") from exc
    except pickle.UnpicklingError as exc:
        raise ModelFileError(
            f"{path}: holds more than plain tensors, or is damaged; only plain weights are loaded from pickles."
            " Use a safetensors file"
        ) from exc
    except (RuntimeError, EOFError, ValueError, KeyError, AttributeError) as exc:
        raise ModelFileError(f"{path}: is not a readable torch file: {exc}") from exc
    tensors = flatten_tensors(content)
    return Weights(path, {name: TensorInfo(t.dtype, tuple(t.shape)) for name, t in tensors.items()}, tensors)


def flatten_tensors(content: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of a pickled file: of the mapping itself, or the one nested in it."""
    if not isinstance(content, Mapping):
        return {}
    for nested in _NESTING:
        if isinstance(content.get(nested), Mapping):
            return flatten_tensors(content[nested])
    if len(content) == 1 and isinstance(only := next(iter(content.values())), Mapping):
        return flatten_tensors(only)
    return {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}
