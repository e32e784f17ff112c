"""NVSHMEM arenas on a real GPU; `nvshmem_check.py` is the same without pytest."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import nvshmem_check
from tests.support.client import Client
from tests.support.server import RunningServer

PROBLEM = nvshmem_check.problem()
pytestmark = pytest.mark.skipif(bool(PROBLEM), reason=PROBLEM)

GRAPH = Path(__file__).parents[2] / "graphs/text_to_image.json"


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_on_one_gpu_keep_the_contract_and_leave_nothing(ranks: int) -> None:
    assert nvshmem_check.run_ranks(ranks)


async def test_workers_share_gpu_memory_and_start_again_together(
    start_server: Callable[..., RunningServer],
) -> None:
    server = start_server("--arena", "nvshmem", "--arena-memory", "256M", "--workers", "2")
    prompt: dict[str, Any] = json.loads(GRAPH.read_text())
    async with Client(server.url) as client:
        before = await client.wait_for_workers()
        assert "cannot keep results in GPU memory" not in server.log()
        assert (await client.run(prompt)).outcome == "execution_success"
        os.kill(before[0]["pid"], 9)
        await _until_all_are_new(client, {worker["pid"] for worker in before})
        for node in prompt.values():
            if "seed" in node["inputs"]:
                node["inputs"]["seed"] += 1  # so that nothing comes from the cache
        assert (await client.run(prompt)).outcome == "execution_success"


async def _until_all_are_new(client: Client, old: set[int]) -> None:
    for _ in range(300):
        if not old & {worker["pid"] for worker in await client.wait_for_workers()}:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"workers {old} are still there")
