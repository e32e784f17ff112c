"""Kill workers in the middle of prompts: nothing is lost and the picture is the same."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support.client import Client, RunResult
from tests.support.server import PATIENCE_S, RunningServer
from tests.support.striking import Workers, caught, is_at_step, running, until

START = Callable[..., RunningServer]
CHECKPOINT = "sd15_tiny.safetensors"


def graph(seed: int, steps: int = 12, sampler: str = "euler_ancestral") -> dict[str, Any]:
    """Return a small text-to-image graph; ancestral noise shows when a step ran twice or not at all."""
    return {
        "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": CHECKPOINT}},
        "2": {"class_type": "CLIPTextEncode", "inputs": {"clip": ["1", 1], "text": "a red cat"}},
        "3": {"class_type": "CLIPTextEncode", "inputs": {"clip": ["1", 1], "text": "blurry"}},
        "4": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
        "5": {
            "class_type": "KSampler",
            "inputs": {
                "model": ["1", 0],
                "positive": ["2", 0],
                "negative": ["3", 0],
                "latent_image": ["4", 0],
                "seed": seed,
                "steps": steps,
                "cfg": 6.0,
                "sampler_name": sampler,
                "scheduler": "normal",
                "denoise": 1.0,
            },
        },
        "6": {"class_type": "VAEDecode", "inputs": {"samples": ["5", 0], "vae": ["1", 2]}},
        "7": {"class_type": "SaveImage", "inputs": {"images": ["6", 0], "filename_prefix": "recovery"}},
    }


async def picture(client: Client, result: RunResult) -> bytes:
    """Return the raw pixels of a run's only image."""
    (entry,) = result.images()
    with Image.open(io.BytesIO(await client.image(entry))) as image:
        return image.tobytes()


async def wait_for_step(client: Client, step: int) -> None:
    """Read messages until the sampler has done so many steps."""
    async for message in client.socket:
        body = message.json() if message.type.name == "TEXT" else {}
        if body.get("type") == "progress" and body["data"]["value"] >= step:
            return


async def kill_worker_at_step(client: Client, prompt: dict[str, Any], step: int) -> RunResult:
    """Run a prompt and kill -9 the worker that runs it once a step is done."""
    async with caught(client, lambda: client.submit(prompt), is_at_step("5", step + 1)) as work:
        work.kill(work.running[0])
    return await client.listen(work.prompt_id)


def endless(seed: int) -> dict[str, Any]:
    """Return a graph that takes many minutes on any machine; interrupt it."""
    prompt = graph(seed, steps=10_000)
    prompt["4"]["inputs"] |= {"width": 256, "height": 256, "batch_size": 2}
    return prompt


async def test_killed_worker_is_replaced_and_the_prompt_gives_the_same_picture(
    start_server: START, tiny_models: Path
) -> None:
    server = start_server("--cache-none", models=tiny_models)
    async with Client(server.url) as client:
        (before,) = await client.wait_for_workers()
        undisturbed = await picture(client, await client.run(graph(7)))
        killed = await kill_worker_at_step(client, graph(7), 5)
        assert killed.outcome == "execution_success"
        assert await picture(client, killed) == undisturbed
        assert len(killed.images()) == 1
        (after,) = await restarted(client)
        assert after["pid"] != before["pid"]
        assert after["restarts"] == 1
        assert len(list(server.folder("output").glob("recovery_*"))) == len(await client.get("/history"))
        assert not list(server.folder("output").glob(".*"))


async def restarted(client: Client) -> list[dict[str, Any]]:
    """Return the workers once one has come in the place of another."""

    async def found() -> list[dict[str, Any]]:
        workers = await client.wait_for_workers()
        return workers if any(worker["restarts"] for worker in workers) else []

    workers: list[dict[str, Any]] = await until(found)
    return workers


async def test_results_of_earlier_prompts_that_died_with_their_worker_are_made_again(
    start_server: START, tiny_models: Path
) -> None:
    server = start_server(models=tiny_models)
    async with Client(server.url) as client:
        (worker,) = await client.wait_for_workers()
        first = await picture(client, await client.run(graph(7, steps=2)))
        os.kill(worker["pid"], signal.SIGKILL)
        await restarted(client)
        changed = graph(7, steps=2)
        changed["7"]["inputs"]["filename_prefix"] = "again"
        again = await client.run(changed)
        assert again.outcome == "execution_success"
        assert await picture(client, again) == first
        assert "5" in again.executed_nodes()


async def test_two_workers_give_the_pictures_of_one_and_work_side_by_side(
    start_server: START, tiny_models: Path, server: RunningServer
) -> None:
    pair = start_server("--workers", "2", "--cache-none", models=tiny_models)
    async with Client(pair.url) as two, Client(server.url) as one:
        workers = await two.wait_for_workers()
        assert len({worker["pid"] for worker in workers}) == 2
        ids = [await two.submit(graph(seed, steps=6)) for seed in (1, 2, 3, 4)]
        results = {}
        for prompt_id in ids:
            results[prompt_id] = await history_of(two, prompt_id)
        for seed, prompt_id in zip((1, 2, 3, 4), ids, strict=True):
            alone = await picture(one, await one.run(graph(seed, steps=6)))
            assert await picture(two, results[prompt_id]) == alone


async def test_prompt_survives_the_loss_of_one_of_two_workers(start_server: START, tiny_models: Path) -> None:
    server = start_server("--workers", "2", "--cache-none", models=tiny_models)
    async with Client(server.url) as client:
        await client.wait_for_workers()
        undisturbed = await picture(client, await client.run(graph(9)))
        killed = await kill_worker_at_step(client, graph(9), 4)
        assert killed.outcome == "execution_success"
        assert await picture(client, killed) == undisturbed


async def history_of(client: Client, prompt_id: str, within_s: float = PATIENCE_S) -> RunResult:
    """Poll until a prompt is in history."""
    async with asyncio.timeout(within_s):
        while True:
            history = await client.get(f"/history/{prompt_id}")
            if history:
                result = RunResult(prompt_id)
                result.history = history[prompt_id]
                return result
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("sampler", ["heun", "dpmpp_2m_sde", "uni_pc", "dpm_adaptive"])
async def test_samplers_with_history_survive_a_lost_worker(
    start_server: START, tiny_models: Path, sampler: str
) -> None:
    server = start_server("--cache-none", models=tiny_models)
    async with Client(server.url) as client:
        await client.wait_for_workers()
        undisturbed = await picture(client, await client.run(graph(3, 8, sampler)))
        killed = await kill_worker_at_step(client, graph(3, 8, sampler), 3)
        assert killed.outcome == "execution_success"
        assert await picture(client, killed) == undisturbed


async def test_interrupt_while_a_picture_is_written_leaves_no_file(start_server: START) -> None:
    server = start_server()
    Image.effect_noise((64, 64), 90).convert("RGB").save(server.folder("input") / "noise.png")
    size = {"width": 4096, "height": 4096, "upscale_method": "lanczos", "crop": "disabled"}
    prompt = {
        "1": {"class_type": "LoadImage", "inputs": {"image": "noise.png"}},
        "2": {"class_type": "ImageScale", "inputs": {"image": ["1", 0], **size}},
        "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "big"}},
    }
    output = server.folder("output")

    def is_writing(workers: Workers, prompt_id: str) -> bool:
        return bool(running(workers, prompt_id)) and bool(list(output.iterdir()))

    async def submit() -> str:
        for path in output.iterdir():
            path.unlink()  # of a prompt that was too fast to be caught
        return await client.submit(prompt)

    async def has_no_files() -> bool:
        return not list(output.iterdir())

    async with Client(server.url) as client:
        await client.wait_for_workers()
        async with caught(client, submit, is_writing) as work:
            await client.post("/interrupt", {})
        assert (await client.listen(work.prompt_id)).outcome == "execution_interrupted"
        await until(has_no_files)
