"""Every kind of arena keeps the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from comfyserverless.dataplane.arena import LocalArena
from comfyserverless.dataplane.shared_memory import SharedMemoryArena
from tests.support.arena_contract import CHECKS, LEAST_BYTES, Check

Pair = tuple[LocalArena, LocalArena]


@contextmanager
def shared_memory(folder: Path) -> Iterator[Pair]:
    owner, reader = (SharedMemoryArena(str(folder / name), LEAST_BYTES) for name in ("w0.0", "w1.0"))
    yield owner, reader
    owner.close()
    reader.close()


KINDS: dict[str, Callable[[Path], AbstractContextManager[Pair]]] = {"shared": shared_memory}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_arena_keeps_its_contract(kind: str, check: Check, tmp_path: Path) -> None:
    with KINDS[kind](tmp_path) as (owner, reader):
        check(owner, reader)
        check(owner, owner)
