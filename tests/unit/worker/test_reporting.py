"""What a worker tells of its memory, and how often it repeats itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import torch

from comfyserverless.core.ids import WorkerId
from comfyserverless.core.memory import DeviceMemory, HostMemory, MemoryCounters, ModelMemory, WeightsPicture
from comfyserverless.core.messages import WorkerStats
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.worker.reporting import Reporter

CPU = torch.device("cpu")
MODEL = ModelMemory("a.safetensors", "unet", "", 4, ((0, 3),), (), 2, False, 100, 77)


class Weights:
    def __init__(self) -> None:
        self.models: tuple[ModelMemory, ...] = (MODEL,)

    def __call__(self) -> WeightsPicture:
        return WeightsPicture(DeviceMemory(100, 77), HostMemory(), MemoryCounters(disk_layers=3), self.models)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TensorStore]:
    store = TensorStore(WorkerId("w0.0"), SharedMemoryArena(str(tmp_path / "w0"), 1 << 20))
    yield store
    store.close()


def test_models_are_told_again_only_when_they_have_changed(store: TensorStore) -> None:
    weights = Weights()
    reporter = Reporter(CPU, store, weights, cast(Any, None))
    told = []
    for models in ((MODEL,), (MODEL,), (), ()):
        weights.models = models
        memory = reporter.measure(None).memory
        assert memory is not None
        told.append(memory.models)
    assert told == [(MODEL,), None, (), None]


def test_the_arena_and_what_was_fetched_are_told(store: TensorStore, tmp_path: Path) -> None:
    peer_arena = SharedMemoryArena(str(tmp_path / "w1"), 1 << 20)
    peer = TensorStore(WorkerId("w1.0"), peer_arena)
    ref = peer.put(torch.ones(1000))
    store.add_peer(WorkerId("w1.0"), peer_arena.path)
    kept = [store.get(ref), store.get(ref)]  # the second is the first's
    mine = store.put(torch.ones(2000))
    memory = Reporter(CPU, store, Weights(), cast(Any, None)).measure(0.001).memory
    assert memory is not None
    assert (memory.arena.total_bytes, memory.arena.used_bytes, memory.arena.blocks) == (1 << 20, 8192, 1)
    assert memory.arena.largest_free_bytes == 1 << 19
    assert (memory.counters.fetched_tensors, memory.counters.fetched_bytes) == (1, ref.size_bytes)
    assert (memory.counters.disk_layers, memory.link_s) == (3, 0.001)
    assert len(kept) == 2
    assert mine.size_bytes == 8000
    peer.close()


def test_a_full_report_stays_small(store: TensorStore) -> None:
    holes = tuple((layer, layer + 1) for layer in range(0, 200, 2))
    model = msgspec.structs.replace(MODEL, name="n" * 100, variant="v" * 420, layers=200, resident=holes)
    weights = Weights()
    weights.models = (model,) * 48
    stats = Reporter(CPU, store, weights, cast(Any, None)).measure(0.0)
    frame = msgspec.msgpack.encode(stats)
    assert len(frame) < 64 << 10
    assert msgspec.msgpack.decode(frame, type=WorkerStats) == stats
