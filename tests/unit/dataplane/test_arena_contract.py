"""Every kind of arena keeps the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from comfyserverless.dataplane.arena import LocalArena
from comfyserverless.dataplane.nvshmem_arena import NvshmemArena, Place
from comfyserverless.dataplane.nvshmem_library import NvshmemLibrary
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from tests.support.arena_contract import CHECKS, LEAST_BYTES, Check
from tests.support.fake_nvshmem import HostMemory, World

Pair = tuple[LocalArena, LocalArena]


@contextmanager
def shared_memory(folder: Path) -> Iterator[Pair]:
    owner, reader = (SharedMemoryArena(str(folder / name), LEAST_BYTES) for name in ("w0.0", "w1.0"))
    yield owner, reader
    owner.close()
    reader.close()


@contextmanager
def nvshmem(_folder: Path) -> Iterator[Pair]:
    world = World(ranks=2)
    arenas = [
        NvshmemArena(NvshmemLibrary(bindings, HostMemory()), Place("island", rank, 2), world.uid, LEAST_BYTES)
        for rank, bindings in enumerate(world.ranks)
    ]
    yield arenas[0], arenas[1]
    for arena in arenas:
        arena.close()
        arena.finish()


KINDS: dict[str, Callable[[Path], AbstractContextManager[Pair]]] = {"shared": shared_memory, "nvshmem": nvshmem}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_arena_keeps_its_contract(kind: str, check: Check, tmp_path: Path) -> None:
    with KINDS[kind](tmp_path) as (owner, reader):
        check(owner, reader)
        check(owner, owner)
