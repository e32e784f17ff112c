"""Bring blocks from files to the device: through a host tier of recent ones, over a link that may be emulated.

On CUDA, host blocks are pinned and copies run on a stream of their own, for which the computing stream waits.
On the CPU the host tier is off unless asked for: there the system itself keeps files in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from comfyserverless.models.resident.blocks import allocate
from comfyserverless.models.resident.host import HostTier
from comfyserverless.residency.policy import LayerKey

_BITS = 8
_QUEUE_S = 0.02


@dataclass(frozen=True, slots=True)
class Block:
    """The bytes of a layer on the device.

    moved_bytes: of them that came over the link; event: on CUDA, what a stream that reads them waits for.
    """

    data: Tensor
    moved_bytes: int = 0
    event: torch.cuda.Event | None = None


@dataclass(slots=True)
class Traffic:
    """How many layers, and bytes, came from where since the start; made: computed on the device."""

    host_layers: int = 0
    disk_layers: int = 0
    made_layers: int = 0
    host_bytes: int = 0
    disk_bytes: int = 0


class Transfer:
    """The way from files to one device; used by one thread at a time, except `wait` and `keep_until_done`.

    host_bytes: budget of the host tier. link_gbps: when given, blocks arrive no faster than this many gigabits
    a second (an emulated link).
    """

    def __init__(self, device: torch.device, host_bytes: int = 0, link_gbps: float | None = None) -> None:
        self.device = device
        self.link_gbps = link_gbps
        self.host = HostTier(host_bytes)
        self.traffic = Traffic()
        self._is_cuda = device.type == "cuda"
        self._stream: torch.cuda.Stream | None = None
        self._link_free_s = 0.0

    def deliver(self, key: LayerKey, size_bytes: int, read: Callable[[Tensor], None]) -> Block:
        """Return a block on the device. read: fills a host block of this size; what it raises passes."""
        arrival_s = self._book_link(size_bytes)
        host = self.host.get(key)
        if host is None:
            is_kept = self.host.make_room(key, size_bytes)
            host = self._host_block(size_bytes)
            read(host)
            if is_kept:
                self.host.put(key, host)
            block = self._copy(host) if is_kept or self._is_cuda else Block(host, size_bytes)
            self.traffic.disk_layers += 1
            self.traffic.disk_bytes += size_bytes
        else:
            block = self._copy(host)
            self.traffic.host_layers += 1
            self.traffic.host_bytes += size_bytes
        time.sleep(max(0.0, arrival_s - time.perf_counter()))
        return block

    def link_s(self, size_bytes: int) -> float:
        """Return how long the emulated link is busy with so many bytes, 0 without one."""
        return 0.0 if self.link_gbps is None else size_bytes * _BITS / (self.link_gbps * 1e9)

    def make(self, size_bytes: int, fill: Callable[[Tensor], None]) -> Block:
        """Return a block whose bytes are computed on the device. fill: does it, on the stream of the copies."""
        with self._on_stream():
            data = self._device_block(size_bytes)
            fill(data)
            self.traffic.made_layers += 1
            return self._finished(data, moved_bytes=0)

    def wait(self, block: Block) -> None:
        """Make what is computed from now on wait for a block."""
        if block.event is not None:
            torch.cuda.current_stream(self.device).wait_event(block.event)

    def keep_until_done(self, block: Block) -> None:
        """Keep the memory of a block from being given away before what was queued to read it has run."""
        if block.event is not None:
            block.data.record_stream(torch.cuda.current_stream(self.device))

    def _book_link(self, size_bytes: int) -> float:
        """Return when so many bytes have come over the emulated link; without one, now.

        Transfers that follow closely come back to back, as those of a queue of copies do.
        """
        now_s = time.perf_counter()
        if self.link_gbps is None:
            return now_s
        is_queued = now_s - self._link_free_s < _QUEUE_S
        begin_s = self._link_free_s if is_queued else now_s
        self._link_free_s = begin_s + self.link_s(size_bytes)
        return self._link_free_s

    def _copy(self, host: Tensor) -> Block:
        with self._on_stream():
            data = self._device_block(host.nbytes)
            data.copy_(host, non_blocking=True)
            return self._finished(data, host.nbytes)

    def _finished(self, data: Tensor, moved_bytes: int) -> Block:
        if not self._is_cuda:
            return Block(data, moved_bytes)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        # A pinned block that nobody keeps may be reused by the host at once, so the copy must be over.
        event.synchronize()
        return Block(data, moved_bytes, event)

    def _host_block(self, size_bytes: int) -> Tensor:
        if self._is_cuda:
            return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
        return allocate(size_bytes)

    def _device_block(self, size_bytes: int) -> Tensor:
        if self._is_cuda:
            return torch.empty(size_bytes, dtype=torch.uint8, device=self.device)
        return allocate(size_bytes)

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        if not self._is_cuda:
            yield
            return
        if self._stream is None:
            self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._stream):
            yield
