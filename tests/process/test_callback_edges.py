"""Run ControlNet graphs on two workers: the denoiser starts beside its ControlNets, nothing else changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Client
from tests.support.parity import INPUTS, case_names, compare, workflow_of
from tests.support.server import RunningServer
from tests.support.striking import Workers, caught, until

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
    return await latents_of(client, await client.submit(graph))


async def latents_of(client: Client, prompt_id: str) -> list[bytes]:
    """Wait for a prompt and return the latents that it saves."""
    result = await client.listen(prompt_id)
    assert result.outcome == "execution_success", result.messages[-3:]
    found = [entry for output in result.history["outputs"].values() for entry in output.get("latents", ())]
    assert found
    return [await client.image(entry) for entry in found]


def are_both_at_work(workers: Workers, prompt_id: str) -> bool:
    """Tell whether two workers run calls of a prompt."""
    return sum(any(prompt_id in name for name in worker["running"]) for worker in workers) == 2


async def is_idle(client: Client) -> bool:
    """Tell whether workers run nothing."""
    return not any(worker["running"] for worker in (await client.get("/comfyserverless/workers"))["workers"])


async def waited_s(client: Client) -> float:
    """Return how long calls of this tenant waited in a lane for elements."""
    seconds: float = (await client.get("/comfyserverless/tenants"))["tenants"][0]["waited_s"]["gpu"]
    return seconds


async def has_waited(client: Client, graph: dict[str, Any]) -> bool:
    """Tell whether a call ever began before all of its elements were there; runs a graph until one does."""
    for _ in range(20):
        if await waited_s(client) > 0:
            return True
        await latents(client, graph)
    return False


async def test_two_workers_give_the_recorded_results_of_controlnet_cases(pair: RunningServer) -> None:
    async with Client(pair.url) as client:
        await client.wait_for_workers()
        for case in CASES:
            assert [each for each in await compare(client, case) if each.difference > 1.0] == [], case
        assert await has_waited(client, longer(CHAIN, 12)), "no denoising step ran beside its ControlNet"


async def test_two_workers_give_the_bits_of_one_also_when_one_of_them_dies(
    pair: RunningServer, server: RunningServer
) -> None:
    graph = longer(CHAIN, 12)
    async with Client(give_inputs(server).url) as one, Client(pair.url) as two:
        await two.wait_for_workers()
        undisturbed = await latents(one, graph)
        assert await latents(two, graph) == undisturbed
        assert await waited_s(one) == 0
        for place in (0, 1):
            async with caught(two, lambda: two.submit(graph), are_both_at_work) as work:
                work.kill(work.running[place])
            assert await latents_of(two, work.prompt_id) == undisturbed


async def test_interrupt_ends_the_consumer_that_waits_and_its_producer(pair: RunningServer) -> None:
    async with Client(pair.url) as client:
        await client.wait_for_workers()
        async with caught(client, lambda: client.submit(longer(CHAIN, 1000)), are_both_at_work) as work:
            await client.post("/interrupt", {"prompt_id": work.prompt_id})
        assert (await client.listen(work.prompt_id)).outcome == "execution_interrupted"
        await until(lambda: is_idle(client))
        assert await latents(client, workflow_of(CHAIN))
