"""What recovery must not do: run a call that kills workers for ever, or go on with what was interrupted."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.process.test_recovery import graph, picture
from tests.support.client import Client, RunResult
from tests.support.holding import held
from tests.support.server import RunningServer
from tests.support.striking import caught, has_ended, is_at_step, running, until

START = Callable[..., RunningServer]
TRIES = 5


def slow_graph(seed: int) -> dict[str, Any]:
    """Return a graph whose steps take a second or more, each in some fifty layers."""
    prompt = graph(seed, steps=6)
    prompt["4"]["inputs"] |= {"width": 256, "height": 256, "batch_size": 12}
    return prompt


async def kill_a_step_twice(client: Client, other: Client) -> tuple[RunResult, str]:
    """Kill the worker that runs a step, and the next one that runs it; returns what came of the prompt.

    A prompt that was over before that is sent again. Returns the id of another one that was there, too.
    """
    for _ in range(TRIES):
        async with caught(client, lambda: client.submit(slow_graph(1)), is_at_step("5", 3)) as work:
            beside = await other.submit(graph(5))
            (step,) = work.running
            dead_pid = work.kill(step)
        if await kill_runner_of(client, work.prompt_id, step, dead_pid):
            return await client.listen(work.prompt_id), beside
    raise AssertionError("no step was caught a second time")


async def kill_runner_of(client: Client, prompt_id: str, step: str, dead_pid: int) -> bool:
    """Kill the worker that runs a step again; False if it is over before."""
    while not await has_ended(client, prompt_id):
        workers = (await client.get("/comfyserverless/workers"))["workers"]
        pids = [worker["pid"] for worker in workers if step in worker["running"] and worker["pid"] != dead_pid]
        if not pids:
            continue
        with held(*pids):
            for _ in range(2):
                workers = (await client.get("/comfyserverless/workers"))["workers"]
            if any(step in worker["running"] for worker in workers if worker["pid"] in pids):
                os.kill(pids[0], signal.SIGKILL)
                return True
    return False


async def test_a_step_that_kills_two_workers_fails_its_prompt_and_no_other(
    start_server: START, tiny_models: Path
) -> None:
    server = start_server("--workers", "2", "--cache-none", "--checkpoint-steps", "1", models=tiny_models)
    async with Client(server.url) as client, Client(server.url) as other:
        await client.wait_for_workers()
        undisturbed = await picture(other, await other.run(graph(5)))
        failed, beside = await kill_a_step_twice(client, other)
        assert failed.outcome == "execution_error"
        message = next(body["exception_message"] for kind, body in failed.messages if kind == "execution_error")
        assert "its worker was lost 2 times" in message
        done = await other.listen(beside)
        assert done.outcome == "execution_success"
        assert await picture(other, done) == undisturbed
        recovery = (await client.get("/comfyserverless/workers"))["recovery"]
        assert recovery["workers_lost"] >= 2
        assert recovery["checkpoints"] == 0


async def test_an_interrupt_ends_a_slow_step_long_before_its_end_and_harms_no_other_prompt(
    start_server: START, tiny_models: Path
) -> None:
    server = start_server("--cache-none", models=tiny_models)
    async with Client(server.url) as client:
        await client.wait_for_workers()
        undisturbed = await picture(client, await client.run(graph(5)))
        for _ in range(TRIES):
            async with caught(client, lambda: client.submit(slow_graph(1)), is_at_step("5", 3)) as work:
                await client.post("/interrupt", {"prompt_id": work.prompt_id})
                next_id = await client.submit(graph(5))
            run = await client.listen(work.prompt_id)
            again = await client.listen(next_id)
            assert again.outcome == "execution_success"
            assert await picture(client, again) == undisturbed
            if run.outcome == "execution_interrupted" and await was_cut_short(client, work.prompt_id):
                return
        raise AssertionError("every step went on to its end")


async def was_cut_short(client: Client, prompt_id: str) -> bool:
    """Tell whether a step that was cut took less than half of what the others did, by its worker's clock."""

    async def is_over() -> bool:
        return not running(await client.wait_for_workers(), prompt_id)

    await until(is_over)
    told = (await client.get(f"/usage/invocations?limit=2000&prompt_id={prompt_id}"))["invocations"]
    steps = [each for each in told if each["function"] == "denoise.step"]
    cut_s = [each["compute_s"] for each in steps if each["outcome"] == "cancelled"]
    whole_s = [each["compute_s"] for each in steps if each["outcome"] == "done"]
    return bool(cut_s) and max(cut_s) < min(whole_s) / 2
