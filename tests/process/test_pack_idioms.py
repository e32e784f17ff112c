"""A pack written as popular ones are: selectors that feed combos, threads, its own samplers and schedulers."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Client
from tests.support.server import RunningServer, ServerOptions

PACK = Path(__file__).parents[1] / "support" / "packs" / "idioms"


@pytest.fixture(scope="module")
def packs(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Return a server with the pack."""
    base = tmp_path_factory.mktemp("pack_idioms")
    shutil.copytree(PACK, base / "custom_nodes" / "idioms", ignore=shutil.ignore_patterns("__pycache__"))
    running = RunningServer.start(ServerOptions(base, models=tiny_models))
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
async def client(packs: RunningServer) -> AsyncIterator[Client]:
    """Return a client of the server, once its pack is loaded."""
    async with Client(packs.url) as client:
        assert "IdiomsSelector" in await client.get("/object_info/IdiomsSelector")
        yield client


def drawing(sampler_name: Any, scheduler: Any, ckpt_name: Any = "sd15_tiny.safetensors") -> dict[str, Any]:
    """Return a prompt for one small picture."""
    sampling = {"seed": 1, "steps": 2, "cfg": 5.0, "sampler_name": sampler_name, "scheduler": scheduler}
    links = {"model": ["c", 0], "positive": ["t", 0], "negative": ["t", 0], "latent_image": ["e", 0]}
    return {
        "c": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": ckpt_name}},
        "t": {"class_type": "CLIPTextEncode", "inputs": {"clip": ["c", 1], "text": "a cat"}},
        "e": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
        "k": {"class_type": "KSampler", "inputs": {**sampling, **links, "denoise": 1.0}},
        "d": {"class_type": "VAEDecode", "inputs": {"samples": ["k", 0], "vae": ["c", 2]}},
        "s": {"class_type": "SaveImage", "inputs": {"images": ["d", 0], "filename_prefix": "idioms"}},
    }


async def test_selectors_feed_combos_of_files_samplers_and_schedulers(client: Client) -> None:
    chosen = {"ckpt_name": "sd15_tiny.safetensors", "sampler_name": "euler", "scheduler": "karras"}
    prompt = drawing(["x", 1], ["x", 2], ["x", 0])
    result = await client.run(prompt | {"x": {"class_type": "IdiomsSelector", "inputs": chosen}})
    assert result.outcome == "execution_success", result.messages


async def test_built_in_sampler_runs_a_sampler_and_a_scheduler_of_the_pack(client: Client) -> None:
    result = await client.run(drawing("idioms", "idioms_karras"))
    assert result.outcome == "execution_success", result.messages


async def test_threads_of_a_node_run_nodes_and_see_its_folders(client: Client, packs: RunningServer) -> None:
    result = await client.run({"1": {"class_type": "IdiomsThreads", "inputs": {"size": 16}}})
    assert result.outcome == "execution_success", result.messages
    told = result.history["outputs"]["1"]["text"]
    assert told == ["1x16x8x3", "1x16x16x3", str(packs.folder("output"))]
