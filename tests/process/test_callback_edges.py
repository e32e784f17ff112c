"""Run ControlNet graphs on two workers: the denoiser starts beside its ControlNets, nothing else changes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Client
from tests.support.parity import INPUTS, case_names, compare, workflow_of
from tests.support.server import RunningServer

START = Callable[..., RunningServer]
CASES = [case for case in case_names() if case.startswith("cn_")]
CHAIN = "cn_sd15_canny_node_chain_two"


def give_inputs(server: RunningServer) -> RunningServer:
    """Copy the pictures of the recorded cases to where users upload theirs."""
    for path in INPUTS.iterdir():
        shutil.copy(path, server.folder("input") / path.name)
    return server


@pytest.fixture
def pair(start_server: START, tiny_models: Path) -> RunningServer:
    """Return a server with two workers."""
    return give_inputs(start_server("--workers", "2", "--cache-none", models=tiny_models))


def longer(case: str, steps: int) -> dict[str, Any]:
    """Return a case's graph with so many steps."""
    graph = workflow_of(case)
    for node in graph.values():
        if node["class_type"] == "KSampler":
            node["inputs"]["steps"] = steps
    return graph


async def latents(client: Client, graph: dict[str, Any]) -> list[bytes]:
    """Run a graph and return the latents that it saves."""
    result = await client.run(graph)
    assert result.outcome == "execution_success", result.messages[-3:]
    found = [entry for output in result.history["outputs"].values() for entry in output.get("latents", ())]
    assert found
    return [await client.image(entry) for entry in found]


async def wait_until(client: Client, is_so: Callable[[list[str]], bool]) -> None:
    """Look at what runs on the workers until it is as wanted."""
    async with asyncio.timeout(30):
        while True:
            workers = (await client.get("/comfyserverless/workers"))["workers"]
            if is_so([name for worker in workers for name in worker["running"]]):
                return
            await asyncio.sleep(0.02)


async def waited_s(client: Client) -> float:
    """Return how long calls of this tenant waited in a lane for elements."""
    seconds: float = (await client.get("/comfyserverless/tenants"))["tenants"][0]["waited_s"]["gpu"]
    return seconds


async def test_two_workers_give_the_recorded_results_of_controlnet_cases(pair: RunningServer) -> None:
    async with Client(pair.url) as client:
        await client.wait_for_workers()
        for case in CASES:
            assert [each for each in await compare(client, case) if each.difference > 1.0] == [], case
        assert await waited_s(client) > 0, "no denoising step ran beside its ControlNet"


async def test_two_workers_give_the_bits_of_one_also_when_one_of_them_dies(
    pair: RunningServer, server: RunningServer
) -> None:
    graph = longer(CHAIN, 12)
    async with Client(give_inputs(server).url) as one, Client(pair.url) as two:
        await two.wait_for_workers()
        undisturbed = await latents(one, graph)
        assert await latents(two, graph) == undisturbed
        assert await waited_s(one) == 0
        running = asyncio.create_task(latents(two, graph))
        await wait_until(two, lambda names: len(names) == 2)
        for worker in await two.wait_for_workers():
            if worker["running"]:
                os.kill(worker["pid"], signal.SIGKILL)
                break
        assert await running == undisturbed


async def test_interrupt_ends_the_consumer_that_waits_and_its_producer(pair: RunningServer) -> None:
    async with Client(pair.url) as client:
        await client.wait_for_workers()
        prompt_id = await client.submit(longer(CHAIN, 1000))
        await wait_until(client, lambda names: len(names) == 2)
        await client.post("/interrupt", {"prompt_id": prompt_id})
        assert (await client.listen(prompt_id)).outcome == "execution_interrupted"
        await wait_until(client, lambda names: not names)
        assert await latents(client, workflow_of(CHAIN))
