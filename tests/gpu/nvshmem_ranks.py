"""What the ranks of an island do to prove their arenas: processes on a GPU, threads where there is none.

A `Desk` is where ranks leave notes for each other and for who started them.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from comfyserverless.core import values
from comfyserverless.core.errors import WorkerError
from comfyserverless.core.ids import WorkerId
from comfyserverless.dataplane.nvshmem_arena import NvshmemArena, NvshmemPeer
from comfyserverless.dataplane.publication import PublicationRef
from comfyserverless.dataplane.store import TensorStore
from tests.support.arena_contract import CHECKS

PRODUCER, CONSUMER = WorkerId("w0.0"), WorkerId("w1.0")
ELEMENTS = 3


@dataclass(frozen=True, slots=True)
class Desk:
    """A folder of notes."""

    folder: Path
    patience_s: float = 60.0

    def leave(self, name: str, note: Any) -> None:
        draft = self.folder / f".{name}"
        draft.write_bytes(msgspec.msgpack.encode(note))
        draft.rename(self.folder / name)

    def find(self, name: str) -> Any:
        """Wait for a note and return it. Raises TimeoutError."""
        deadline_s = time.monotonic() + self.patience_s
        while not (self.folder / name).exists():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"nobody left the note {name!r}")
            time.sleep(0.005)
        return msgspec.msgpack.decode((self.folder / name).read_bytes())


def pattern(size: int, device: torch.device, start: int = 0) -> torch.Tensor:
    """Return [size] int32 numbers that tell a wrong offset."""
    return torch.arange(start, start + size, dtype=torch.int32, device=device)


def be_alone(arena: NvshmemArena) -> dict[str, float]:
    """Keep the contract with oneself, and compute with weights in the arena; returns measurements."""
    for check in CHECKS:
        check(arena, arena)
    _rebind_weights(arena)
    peer = arena.attach(arena.path)
    return _measured(arena, peer, source_bytes=arena.allocate(_biggest_bytes(arena)))


def produce(arena: NvshmemArena, desk: Desk) -> None:
    """Be rank 0: put tensors, publish elements, push a block, then stay until killed (or told to go)."""
    store = TensorStore(PRODUCER, arena)
    tensors = [pattern(size, arena.device, start=size) for size in (1, 300, 70_000)]
    desk.leave("tensors", values.encode([store.put(tensor) for tensor in tensors]))
    desk.leave("big", arena.allocate(_biggest_bytes(arena)))
    publication = store.publish(ELEMENTS)
    desk.leave("publication", publication.ref.encode())
    for number in range(ELEMENTS - 1):
        desk.find(f"element {number} is waited for")
        publication.publish(values.encode(store.put(pattern(1000, arena.device, start=number))))
    target = desk.find("target")
    source, flag = arena.allocate(4000), arena.allocate_flag()
    arena.tensor(arena.view(source, 4000)).view(torch.int32).copy_(pattern(1000, arena.device, start=9))
    desk.leave("flag", flag)
    desk.find("the stream waits")
    arena.push(1, source, target, 4000, (flag, 5))
    arena.flush()
    desk.leave("produced", True)
    desk.find("end")


def consume(arena: NvshmemArena, desk: Desk) -> dict[str, float]:
    """Be rank 1: get what rank 0 has, then see it go; returns measurements."""
    store = TensorStore(CONSUMER, arena)
    path = arena.place.path_of(0)
    store.add_peer(PRODUCER, path)
    refs = values.decode(desk.find("tensors"))
    for size, got in zip((1, 300, 70_000), store.get_tree(refs)[0], strict=True):
        assert torch.equal(got, pattern(size, arena.device, start=size))
    peer = arena.attach(path)
    assert isinstance(peer, NvshmemPeer)
    measured = _measured(arena, peer, desk.find("big"))
    subscription = store.subscribe(PublicationRef.decode(desk.find("publication")))
    for number in range(ELEMENTS - 1):
        desk.leave(f"element {number} is waited for", True)
        got = store.get(values.decode(subscription.element(number, desk.patience_s)))
        assert torch.equal(got, pattern(1000, arena.device, start=number))
    _take_pushed(arena, peer, desk)
    desk.find("rank 0 is gone")
    store.note_peer_gone(PRODUCER)
    start_s = time.monotonic()
    with pytest.raises(WorkerError, match="is gone"):
        subscription.element(ELEMENTS - 1, desk.patience_s)
    measured["seconds until a waiter notices a dead producer"] = time.monotonic() - start_s
    return measured


def _take_pushed(arena: NvshmemArena, peer: NvshmemPeer, desk: Desk) -> None:
    target = arena.allocate(4000)
    desk.leave("target", target)
    flag = desk.find("flag")
    desk.leave("the stream waits", True)
    peer.wait_on_stream(flag, 5)
    got = arena.tensor(arena.view(target, 4000)).view(torch.int32) + 0
    arena.flush()
    assert torch.equal(got, pattern(1000, arena.device, start=9))
    desk.find("produced")


def _rebind_weights(arena: NvshmemArena) -> None:
    """Move a layer's weights into the arena; it computes the same from there."""
    layer = torch.nn.Linear(64, 64, device=arena.device)
    x = torch.randn(8, 64, device=arena.device)
    expected = layer(x)
    offset_bytes = arena.allocate(64 * 64 * 4)
    home = arena.tensor(arena.view(offset_bytes, 64 * 64 * 4)).view(torch.float32).view(64, 64)
    home.copy_(layer.weight.data)
    layer.weight.data = home
    assert torch.equal(layer(x), expected)
    del home, layer
    arena.release(offset_bytes)


def _biggest_bytes(arena: NvshmemArena) -> int:
    return 1 << (arena.size_bytes // 8).bit_length() - 1


def _measured(arena: NvshmemArena, peer: NvshmemPeer, source_bytes: int) -> dict[str, float]:
    """Measure one-sided reads of the peer's biggest block, small and whole."""
    size_bytes = _biggest_bytes(arena)
    offset_bytes = arena.allocate(size_bytes)
    target = arena.view(offset_bytes, size_bytes)

    def read_s(part_bytes: int, times: int) -> float:
        taken_s = []
        for _ in range(times):
            start_s = time.perf_counter()
            peer.read_into(target, source_bytes, part_bytes)
            arena.flush()
            taken_s.append(time.perf_counter() - start_s)
        return statistics.median(taken_s)

    read_s(size_bytes, 2)
    small_s, whole_s = read_s(1024, 50), read_s(size_bytes, 9)
    arena.release(offset_bytes)
    return {
        "microseconds of a read of 1 KiB": small_s * 1e6,
        f"GB/s of reads of {size_bytes >> 20} MiB": size_bytes / whole_s / 1e9,
    }
