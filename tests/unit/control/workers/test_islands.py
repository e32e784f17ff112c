"""Workers of an island all get the same answer."""

from __future__ import annotations

import asyncio

import pytest

from comfyserverless.control.workers.islands import Islands
from comfyserverless.core.ids import WorkerId
from comfyserverless.core.messages import IslandReady, JoinIsland
from comfyserverless.core.zygote import IslandPlace

UID = b"u" * 128


def join(rank: int, ranks: int = 2, *, problem: str = "", name: str = "i1") -> JoinIsland:
    uid = UID if rank == 0 and not problem else b""
    return JoinIsland(WorkerId(f"w{rank}.0"), "t", IslandPlace(name, rank, ranks), uid, problem)


async def test_all_get_the_id_of_rank_0_once_all_have_come() -> None:
    islands = Islands()
    second = asyncio.create_task(islands.join(join(1)))
    await asyncio.sleep(0)
    assert not second.done()
    assert await islands.join(join(0)) == await second == IslandReady(UID, "")


async def test_islands_do_not_wait_for_each_other() -> None:
    islands = Islands()
    waiting = asyncio.create_task(islands.join(join(1, name="i1")))
    assert await islands.join(join(0, ranks=1, name="i2")) == IslandReady(UID, "")
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.parametrize("unable", [0, 1])
async def test_one_that_cannot_take_part_decides_for_all(unable: int) -> None:
    islands = Islands()
    joined = [join(rank, problem="there is no GPU" if rank == unable else "") for rank in (0, 1)]
    answers = await asyncio.gather(*map(islands.join, joined))
    assert answers == [IslandReady(b"", "there is no GPU")] * 2


async def test_one_that_does_not_come_decides_for_all_and_finds_the_same_answer_later() -> None:
    islands = Islands(patience_s=0.01)
    missed = IslandReady(b"", "not all workers came")
    assert await islands.join(join(0)) == missed
    assert await islands.join(join(1)) == missed


async def test_island_without_the_id_of_rank_0_uses_shared_memory() -> None:
    nameless = JoinIsland(WorkerId("w0.0"), "t", IslandPlace("i", 0, 1), b"", "")
    assert await Islands().join(nameless) == IslandReady(b"", "rank 0 sent no unique id")
