"""Stand in for nvshmem.bindings and the GPU: host memory for each rank, every call recorded and checked.

All ranks live in one process. Addresses are real: a wrong offset is refused here, or moves wrong bytes.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import numpy as np
import torch

from comfyserverless.dataplane.nvshmem_library import UID_BYTES, DeviceBlock

STREAM = 7
LARGEST_HEAP_BYTES = 1 << 28


class Flags(IntEnum):
    INIT_WITH_UNIQUEID = 8


class SignalOp(IntEnum):
    SIGNAL_SET = 9


class CmpType(IntEnum):
    CMP_GE = 4


class InitStatus(IntEnum):
    STATUS_IS_BOOTSTRAPPED = 1
    STATUS_IS_INITIALIZED = 2
    STATUS_LIMITED_MPG = 3


class NvshmemError(Exception):
    """What the library raises."""


class HostMemory:
    """Host memory, as a device."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.depth = 0

    @contextmanager
    def current(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    def stream(self) -> int:
        return STREAM

    def synchronize(self) -> None:
        pass

    def tensor(self, block: DeviceBlock) -> torch.Tensor:
        return torch.from_numpy(np.asarray(_HostBlock(block)))


class _HostBlock:
    """A block as numpy reads it; numpy holds the object whose array interface it read."""

    def __init__(self, block: DeviceBlock) -> None:
        self._block = block
        self.__array_interface__ = block.__cuda_array_interface__


class _Struct:
    """A C struct by its address."""

    def __init__(self, size_bytes: int) -> None:
        self._bytes = (ctypes.c_uint8 * size_bytes)()
        self.ptr = ctypes.addressof(self._bytes)


class World:
    """The ranks that share a unique id."""

    def __init__(self, ranks: int) -> None:
        self.uid = bytes(range(UID_BYTES))
        self.ranks = [Bindings(self, rank) for rank in range(ranks)]


class Bindings:
    """What one rank calls; calls: (name, arguments...) in order."""

    Flags = Flags
    Signal_op = SignalOp
    Cmp_type = CmpType
    Init_status = InitStatus
    NVSHMEMError = NvshmemError

    def __init__(self, world: World, rank: int) -> None:
        self._world = world
        self._rank = rank
        self.calls: list[tuple[Any, ...]] = []
        self.heap: np.ndarray[Any, np.dtype[np.uint8]] | None = None
        self.is_started = False
        self.refuses = False
        self.status = InitStatus.STATUS_LIMITED_MPG

    @property
    def base(self) -> int:
        assert self.heap is not None
        return int(self.heap.ctypes.data)

    def uniqueid(self) -> _Struct:
        return _Struct(UID_BYTES)

    def InitAttr(self) -> _Struct:
        return _Struct(64)

    def get_uniqueid(self, uid: int) -> None:
        assert self._rank == 0
        ctypes.memmove(uid, self._world.uid, UID_BYTES)

    def set_attr_uniqueid_args(self, rank: int, ranks: int, uid: int, attributes: int) -> None:
        assert ctypes.string_at(uid, UID_BYTES) == self._world.uid
        assert attributes
        self.calls.append(("set_attr_uniqueid_args", rank, ranks))

    def hostlib_init_attr(self, flags: int, attributes: int) -> None:
        assert not self.is_started
        assert attributes
        self.calls.append(("hostlib_init_attr", flags))
        if self.refuses:
            raise NvshmemError("status 7")
        self.is_started = True

    def init_status(self) -> int:
        return self.status

    def calloc(self, count: int, size_bytes: int) -> int:
        assert self.is_started
        self.calls.append(("calloc", count, size_bytes))
        if size_bytes > LARGEST_HEAP_BYTES:
            return 0
        self.heap = np.zeros(count * size_bytes, np.uint8)
        return self.base

    def free(self, address: int) -> None:
        assert address == self.base
        self.calls.append(("free",))
        self.heap = None

    def hostlib_finalize(self) -> None:
        assert self.heap is None, "memory is freed first"
        self.calls.append(("hostlib_finalize",))
        self.is_started = False

    def getmem_on_stream(self, target: int, source: int, size_bytes: int, rank: int, stream: int) -> None:
        here, there = self._offset(target, size_bytes), self._offset(source, size_bytes)
        self.calls.append(("getmem_on_stream", here, there, size_bytes, rank, stream))
        ctypes.memmove(target, self._at(rank, there), size_bytes)

    def putmem_signal_on_stream(
        self,
        target: int,
        source: int,
        size_bytes: int,
        signal: int,
        value: int,
        how: int,
        rank: int,
        stream: int,
    ) -> None:
        there, here = self._offset(target, size_bytes), self._offset(source, size_bytes)
        self.calls.append(
            (
                "putmem_signal_on_stream",
                there,
                here,
                size_bytes,
                self._offset(signal, 8),
                value,
                how,
                rank,
                stream,
            )
        )
        ctypes.memmove(self._at(rank, there), source, size_bytes)
        self._set(signal, value, how, rank)

    def signal_op_on_stream(self, signal: int, value: int, how: int, rank: int, stream: int) -> None:
        self.calls.append(("signal_op_on_stream", self._offset(signal, 8), value, how, rank, stream))
        self._set(signal, value, how, rank)

    def signal_wait_until_on_stream(self, signal: int, how: int, value: int, stream: int) -> None:
        """Make the caller wait, as this stream does everything at once."""
        self.calls.append(("signal_wait_until_on_stream", self._offset(signal, 8), how, value, stream))
        assert how == CmpType.CMP_GE
        deadline_s = time.monotonic() + 60.0
        while self.signal_fetch(signal) < value:
            assert time.monotonic() < deadline_s, "the signal never came"
            time.sleep(0.001)

    def signal_fetch(self, signal: int) -> int:
        self._offset(signal, 8)
        return ctypes.c_uint64.from_address(signal).value

    def quiet_on_stream(self, stream: int) -> None:
        self.calls.append(("quiet_on_stream", stream))

    def _offset(self, address: int, size_bytes: int) -> int:
        """Return an address's offset in this rank's heap; all of the range must be in it."""
        assert self.heap is not None
        assert self.base <= address <= address + size_bytes <= self.base + len(self.heap)
        return address - self.base

    def _at(self, rank: int, offset_bytes: int) -> int:
        return self._world.ranks[rank].base + offset_bytes

    def _set(self, signal: int, value: int, how: int, rank: int) -> None:
        assert how == SignalOp.SIGNAL_SET
        assert signal % 8 == 0
        ctypes.c_uint64.from_address(self._at(rank, self._offset(signal, 8))).value = value
