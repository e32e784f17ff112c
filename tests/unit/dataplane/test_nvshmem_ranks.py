"""What the GPU tests let ranks do, done by threads on the library's stand-in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from comfyserverless.dataplane.nvshmem_arena import NvshmemArena, Place
from comfyserverless.dataplane.nvshmem_library import NvshmemLibrary
from tests.gpu.nvshmem_ranks import Desk, be_alone, consume, produce
from tests.support.fake_nvshmem import HostMemory, World

ARENA_BYTES = 8 << 20


def arenas(ranks: int) -> list[NvshmemArena]:
    world = World(ranks)
    return [
        NvshmemArena(NvshmemLibrary(bindings, HostMemory()), Place("i", rank, ranks), world.uid, ARENA_BYTES)
        for rank, bindings in enumerate(world.ranks)
    ]


def test_rank_alone_keeps_the_contract_with_itself() -> None:
    [arena] = arenas(1)
    assert len(be_alone(arena)) == 2


def test_two_ranks_exchange_tensors_elements_and_a_pushed_block(tmp_path: Path) -> None:
    producer, consumer = arenas(2)
    desk = Desk(tmp_path, patience_s=60.0)
    with ThreadPoolExecutor(2) as threads:
        produced = threads.submit(produce, producer, desk)
        consumed = threads.submit(consume, consumer, desk)
        desk.find("produced")
        desk.leave("rank 0 is gone", True)
        measured = consumed.result(60.0)
        desk.leave("end", True)
        produced.result(60.0)
    assert measured["seconds until a waiter notices a dead producer"] > 0.0
