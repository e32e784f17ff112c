"""What recovery must not do: run a call that kills workers for ever, or go on with what was interrupted."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.process.test_recovery import graph, picture, wait_for_step
from tests.support.client import Client
from tests.support.server import RunningServer

START = Callable[..., RunningServer]


def slow_graph(seed: int) -> dict[str, Any]:
    """Return a graph whose steps take a second or more, each in some fifty layers."""
    prompt = graph(seed, steps=6)
    prompt["4"]["inputs"] |= {"width": 256, "height": 256, "batch_size": 12}
    return prompt


async def step_on_a_worker(
    client: Client, prompt_id: str, step: str = "", *, dead_pid: int = 0
) -> tuple[int, str]:
    """Wait until a step of a prompt runs, a certain one if named, on a live worker; returns pid and step."""
    async with asyncio.timeout(120):
        while True:
            for worker in (await client.get("/comfyserverless/workers"))["workers"]:
                for name in worker["running"]:
                    is_wanted = name == step if step else prompt_id in name and "/5/" in name
                    if is_wanted and worker["pid"] != dead_pid:
                        return worker["pid"], name
            await asyncio.sleep(0.01)


async def test_a_step_that_kills_two_workers_fails_its_prompt_and_no_other(
    start_server: START, tiny_models: Path
) -> None:
    server = start_server("--workers", "2", "--cache-none", "--checkpoint-steps", "1", models=tiny_models)
    async with Client(server.url) as client, Client(server.url) as other:
        await client.wait_for_workers()
        undisturbed = await picture(other, await other.run(graph(5)))
        prompt_id = await client.submit(slow_graph(1))
        beside = await other.submit(graph(5))
        await wait_for_step(client, 2)
        pid, step = await step_on_a_worker(client, prompt_id)
        os.kill(pid, signal.SIGKILL)
        pid, _ = await step_on_a_worker(client, prompt_id, step, dead_pid=pid)
        os.kill(pid, signal.SIGKILL)
        failed = await client.listen(prompt_id)
        assert failed.outcome == "execution_error"
        message = next(body["exception_message"] for kind, body in failed.messages if kind == "execution_error")
        assert "its worker was lost 2 times" in message
        done = await other.listen(beside)
        assert done.outcome == "execution_success"
        assert await picture(other, done) == undisturbed
        recovery = (await client.get("/comfyserverless/workers"))["recovery"]
        assert recovery["workers_lost"] == 2
        assert recovery["checkpoints"] == 0


async def test_an_interrupt_ends_a_slow_step_long_before_its_end_and_harms_no_other_prompt(
    start_server: START, tiny_models: Path
) -> None:
    server = start_server("--cache-none", models=tiny_models)
    async with Client(server.url) as client:
        await client.wait_for_workers()
        undisturbed = await picture(client, await client.run(graph(5)))
        prompt_id = await client.submit(slow_graph(1))
        await wait_for_step(client, 1)
        begin_s = time.perf_counter()
        await wait_for_step(client, 2)
        step_s = time.perf_counter() - begin_s
        await step_on_a_worker(client, prompt_id)
        begin_s = time.perf_counter()
        await client.post("/interrupt", {})
        next_id = await client.submit(graph(5))
        await wait_until_idle(client, prompt_id)
        took_s = time.perf_counter() - begin_s
        assert took_s < step_s / 2
        assert (await client.listen(prompt_id)).outcome == "execution_interrupted"
        again = await client.listen(next_id)
        assert again.outcome == "execution_success"
        assert await picture(client, again) == undisturbed


async def wait_until_idle(client: Client, prompt_id: str) -> None:
    """Wait until no worker runs anything of a prompt."""
    async with asyncio.timeout(60):
        while True:
            workers = (await client.get("/comfyserverless/workers"))["workers"]
            if not any(prompt_id in name for worker in workers for name in worker["running"]):
                return
            await asyncio.sleep(0.005)
