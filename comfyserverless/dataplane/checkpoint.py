"""Write a function's result to a file that outlives this worker, and read it back with the same bits.

A file is the length of its header (8 bytes), the header, and the bytes of all tensors. The header is an encoded
value tree: the result, with tensors replaced by refs whose offsets count from the end of the header. The
process that owns a file makes it and removes it: writing late, when it is gone, makes no new one.
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO

import torch

from comfyserverless.core import values
from comfyserverless.core.errors import ComfyServerlessError
from comfyserverless.core.ids import TensorId, WorkerId
from comfyserverless.core.values import TensorRef, Value
from comfyserverless.dataplane.dtypes import dtype_name, dtype_of

_LENGTH_BYTES = 8
_NOBODY = WorkerId("")


class CheckpointError(ComfyServerlessError):
    """A file is no complete checkpoint."""


def write_checkpoint(path: str, result: Value, limit_bytes: int) -> int:
    """Write a result with its tensors into an existing file, and return its size; 0 if it exceeds the limit.

    result: a value tree with tensors of any shape, dtype and device; unchanged. Raises OSError if there is no
    such file, or no room for it.
    """
    tensors = _Tensors()
    header = values.encode(tensors.replaced(result))
    size_bytes = _LENGTH_BYTES + len(header) + tensors.size_bytes
    if size_bytes > limit_bytes:
        return 0
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        _write(file, memoryview(len(header).to_bytes(_LENGTH_BYTES, "little") + header))
        for tensor, _ in tensors.found.values():
            _write(file, _bytes_of(tensor))
    finally:
        os.close(file)
    return size_bytes


def read_checkpoint(path: str) -> Value:
    """Return what was written, with tensors in host memory.

    Raises OSError if there is no such file, CheckpointError if it is no complete one.
    """
    with open(path, "rb") as file:
        length_bytes = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        header = file.read(length_bytes)
        start_bytes = file.tell()
        if not header or len(header) != length_bytes:
            raise CheckpointError(f"{path} is no complete checkpoint")
        tree = values.decode(header)
        tensors: dict[TensorId, torch.Tensor] = {}
        for ref in values.tensor_refs(tree):
            if ref.id not in tensors:
                file.seek(start_bytes + ref.offset_bytes)
                tensors[ref.id] = _read_tensor(file, ref, path)
    return values.transform(tree, lambda leaf: tensors[leaf.id] if type(leaf) is TensorRef else leaf)


class _Tensors:
    """Give each tensor object of a result its place in the file."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[torch.Tensor, TensorRef]] = {}
        self.size_bytes = 0

    def replaced(self, value: Any) -> Value:
        """Return a value tree with refs for tensors, and lists for tuples."""
        if isinstance(value, dict):
            return {key: self.replaced(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.replaced(item) for item in value]
        return self._ref(value) if isinstance(value, torch.Tensor) else value

    def _ref(self, tensor: torch.Tensor) -> TensorRef:
        if id(tensor) not in self.found:
            size_bytes = tensor.numel() * tensor.element_size()
            place = TensorId(str(len(self.found)))
            ref = TensorRef(
                place, tuple(tensor.shape), dtype_name(tensor.dtype), size_bytes, _NOBODY, self.size_bytes
            )
            self.found[id(tensor)] = tensor, ref
            self.size_bytes += size_bytes
        return self.found[id(tensor)][1]


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    data: memoryview = flat.numpy().data
    return data


def _write(file: int, data: memoryview) -> None:
    """Write all of it: one call may write less."""
    while data:
        data = data[os.write(file, data) :]


def _read_tensor(file: BinaryIO, ref: TensorRef, path: str) -> torch.Tensor:
    flat = torch.empty(ref.size_bytes, dtype=torch.uint8)
    if ref.size_bytes and file.readinto(flat.numpy().data) != ref.size_bytes:  # type: ignore[attr-defined]
        raise CheckpointError(f"{path} ends within a tensor")
    return flat.view(dtype_of(ref.dtype)).view(ref.shape)
