"""Tell the control process every few seconds how a worker's memory is; on a thread that holds up no lane."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec
import torch

from comfyserverless.core.memory import MemoryPicture, ModelMemory, WeightsPicture
from comfyserverless.core.messages import WorkerStats
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.worker import device as devices
from comfyserverless.worker.link import Link, LinkLost

INTERVAL_S = 2.0


class Reporter:
    """Measure and send. weights: draws what the model pool holds."""

    def __init__(
        self, device: torch.device, store: TensorStore, weights: Callable[[], WeightsPicture], link: Link
    ) -> None:
        self._device = device
        self._store = store
        self._weights = weights
        self._link = link
        self._stopped = threading.Event()
        #: what was sent last: sent again only when it has changed
        self._sent_models: tuple[ModelMemory, ...] | None = None

    def start(self) -> None:
        """Begin to report, until `stop` or the end of the link."""
        threading.Thread(target=self._run, name="stats", daemon=True).start()

    def stop(self) -> None:
        """Report nothing any more."""
        self._stopped.set()

    def measure(self, link_s: float | None) -> WorkerStats:
        """Return the memory now. link_s: the round trip of the link."""
        weights, arena = self._weights(), self._store.usage()
        tensors, fetched_bytes = self._store.fetched
        counters = msgspec.structs.replace(
            weights.counters, fetched_tensors=tensors, fetched_bytes=fetched_bytes
        )
        models = None if weights.models == self._sent_models else weights.models
        self._sent_models = weights.models
        return WorkerStats(
            device_free_bytes=devices.free_bytes(self._device),
            resident_bytes=devices.resident_bytes(),
            arena_used_bytes=arena.used_bytes,
            arena_bytes=arena.total_bytes,
            weights_bytes=weights.device.used_bytes,
            memory=MemoryPicture(
                weights.device, weights.host, arena, counters, models, weights.more_models, link_s
            ),
        )

    def _run(self) -> None:
        link_s: float | None = None
        try:
            while not self._stopped.wait(INTERVAL_S):
                self._store.trim()
                round_trip_s = self._link.round_trip_s(INTERVAL_S)
                link_s = link_s if round_trip_s is None else round_trip_s
                self._link.send(self.measure(link_s))
        except LinkLost:
            return  # the receiving thread ends this process
