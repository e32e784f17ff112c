"""Call NVSHMEM through nvshmem4py's bindings: integers in, integers out, one call at a time.

Facts that shape this (nvshmem4py 0.4.1 with library 3.4.5): the library is THREAD_SERIALIZED, so one lock is
around every call; `nvshmem.core` looks buffers up by their first address and would move whole allocations
where a part is meant, so the bindings are called with addresses; starting, allocating and freeing are
collective: they wait for every rank, and for ever if one is dead.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any, Protocol

import torch

UID_BYTES = 128

_ENVIRONMENT = {
    "NVSHMEM_REMOTE_TRANSPORT": "none",  # an island is one host
    "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "lo",
    "NVSHMEM_DISABLE_NCCL": "1",
    "NVSHMEM_DISABLE_NVLS": "1",  # for collectives only, and it fails for two ranks on one GPU
}


class NvshmemUnavailable(RuntimeError):
    """NVSHMEM cannot be used here; the message says why."""


class Memory(Protocol):
    """What is needed of the device besides NVSHMEM itself."""

    device: torch.device

    def current(self) -> AbstractContextManager[None]:
        """Make the device current for the calling thread."""

    def stream(self) -> int:
        """Return the handle of the calling thread's stream."""

    def synchronize(self) -> None:
        """Wait for all work on that stream."""

    def tensor(self, block: DeviceBlock) -> torch.Tensor:
        """Return a [size_bytes] uint8 tensor whose storage keeps the block alive."""


class DeviceBlock:
    """A range of device memory; owner: what keeps the memory allocated."""

    __slots__ = ("__weakref__", "_owner", "address", "size_bytes")

    def __init__(self, address: int, size_bytes: int, owner: object) -> None:
        self.address = address
        self.size_bytes = size_bytes
        self._owner = owner

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.size_bytes,), "typestr": "|u1", "data": (self.address, False), "version": 3}


class CudaMemory:
    """A CUDA device as torch sees it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @contextmanager
    def current(self) -> Iterator[None]:
        """See Memory."""
        with torch.cuda.device(self.device):
            yield

    def stream(self) -> int:
        """See Memory."""
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def synchronize(self) -> None:
        """See Memory."""
        torch.cuda.current_stream(self.device).synchronize()

    def tensor(self, block: DeviceBlock) -> torch.Tensor:
        """See Memory: torch holds the object whose array interface it read."""
        return torch.as_tensor(block, device=self.device)


class NvshmemLibrary:
    """One rank's library. Addresses are this process's; a peer's memory has the same offset from its base.

    bindings: the module nvshmem.bindings.
    """

    def __init__(self, bindings: Any, memory: Memory) -> None:
        self._bindings = bindings
        self.memory = memory
        self._lock = threading.Lock()
        for name, value in _ENVIRONMENT.items():  # a unique id holds an address already
            os.environ.setdefault(name, value)

    def new_uid(self) -> bytes:
        """Return what all ranks need to find each other. Of rank 0 only: it listens until all have come."""
        with self._call() as bindings:
            uid = bindings.uniqueid()
            bindings.get_uniqueid(uid.ptr)
            return ctypes.string_at(uid.ptr, UID_BYTES)

    def start(self, uid: bytes, rank: int, ranks: int) -> None:
        """Join the world. Collective. Raises NvshmemUnavailable if the library refuses."""
        if len(uid) != UID_BYTES:
            raise ValueError(f"a unique id has {UID_BYTES} bytes, not {len(uid)}")
        with self._call() as bindings:
            own, attributes = bindings.uniqueid(), bindings.InitAttr()
            ctypes.memmove(own.ptr, uid, UID_BYTES)
            bindings.set_attr_uniqueid_args(rank, ranks, own.ptr, attributes.ptr)
            try:
                bindings.hostlib_init_attr(int(bindings.Flags.INIT_WITH_UNIQUEID), attributes.ptr)
            except bindings.NVSHMEMError as exc:
                raise NvshmemUnavailable(f"NVSHMEM does not start: {exc}") from exc
            # Without a usable device the library only finds its peers, and reports no error.
            if bindings.init_status() < int(bindings.Init_status.STATUS_IS_INITIALIZED):
                raise NvshmemUnavailable("NVSHMEM does not start: its device cannot be used")

    def allocate(self, size_bytes: int) -> int:
        """Return the address of symmetric memory, zeroed. Collective; holds the interpreter lock meanwhile.

        Raises NvshmemUnavailable if there is not enough.
        """
        with self._call() as bindings:
            address = int(bindings.calloc(1, size_bytes))
        if address == 0:
            raise NvshmemUnavailable(f"NVSHMEM has no {size_bytes} bytes of symmetric memory")
        return address

    def stop(self, address: int) -> None:
        """Free symmetric memory and leave the world. Collective."""
        with self._call() as bindings:
            bindings.free(address)
            bindings.hostlib_finalize()

    def get(self, target: int, source: int, size_bytes: int, rank: int) -> None:
        """Copy from a rank's memory into this one's, in the order of the calling thread's stream."""
        with self._call() as bindings:
            bindings.getmem_on_stream(target, source, size_bytes, rank, self.memory.stream())

    def set_signal(self, address: int, value: int, ranks: range) -> None:
        """Set a 64-bit signal at several ranks, after what the stream does now."""
        with self._call() as bindings:
            stream, how = self.memory.stream(), int(bindings.Signal_op.SIGNAL_SET)
            for rank in ranks:
                bindings.signal_op_on_stream(address, value, how, rank, stream)

    def put_signal(self, target: int, source: int, size_bytes: int, signal: tuple[int, int], rank: int) -> None:
        """Copy from this rank's memory to a rank's, then set its signal; signal: (address, value)."""
        with self._call() as bindings:
            how = int(bindings.Signal_op.SIGNAL_SET)
            bindings.putmem_signal_on_stream(
                target, source, size_bytes, *signal, how, rank, self.memory.stream()
            )

    def wait_signal(self, address: int, value: int) -> None:
        """Let the stream (not the caller) wait until this rank's signal is at least `value`."""
        with self._call() as bindings:
            how = int(bindings.Cmp_type.CMP_GE)
            bindings.signal_wait_until_on_stream(address, how, value, self.memory.stream())

    def load_signal(self, address: int) -> int:
        """Return this rank's signal now."""
        with self._call() as bindings:
            return int(bindings.signal_fetch(address))

    def quiet(self) -> None:
        """Wait until everything that was sent on the stream has arrived."""
        with self._call() as bindings:
            bindings.quiet_on_stream(self.memory.stream())
        self.memory.synchronize()

    @contextmanager
    def _call(self) -> Iterator[Any]:
        with self._lock, self.memory.current():
            yield self._bindings


def find_library(device: torch.device) -> NvshmemLibrary:
    """Return the library for a device, not started. Raises NvshmemUnavailable, saying in one line why not."""
    if device.type != "cuda":
        raise NvshmemUnavailable("there is no GPU")
    try:
        import_module("cuda.pathfinder").load_nvidia_dynamic_lib("nvshmem_host")
        bindings = import_module("nvshmem.bindings")
    except ImportError as exc:
        raise NvshmemUnavailable(
            f"nvshmem4py is not installed ({exc}); install comfyserverless[nvshmem]"
        ) from exc
    except (OSError, RuntimeError) as exc:
        raise NvshmemUnavailable(f"the NVSHMEM library cannot be loaded: {exc}") from exc
    return NvshmemLibrary(bindings, CudaMemory(device))
