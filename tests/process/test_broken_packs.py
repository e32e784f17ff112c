"""Serve with packs that cannot live: built-in nodes are there at once, and other packs go on."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.support.client import Client
from tests.support.server import RunningServer, ServerOptions

STUBS = Path(__file__).parents[1] / "support" / "packs" / "stub_nodes"


async def until(look: Callable[[], Awaitable[Any]], within_s: float = 60.0) -> Any:
    """Return what a look gives as soon as that is something."""
    async with asyncio.timeout(within_s):
        while not (found := await look()):  # noqa: ASYNC110 - what another process does
            await asyncio.sleep(0.2)
    return found


async def test_pack_that_ends_the_process_from_a_timer_is_found_and_given_up(tmp_path: Path) -> None:
    folder = tmp_path / "custom_nodes"
    shutil.copytree(STUBS, folder / "stub_nodes", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "leaver.py").write_text(
        "import os, threading\nthreading.Timer(0.5, lambda: os._exit(1)).start()\nNODE_CLASS_MAPPINGS = {}\n"
    )
    server = RunningServer.start(ServerOptions(tmp_path))
    try:
        async with Client(server.url) as client:

            async def given_up() -> Any:
                host = (await client.get("/comfyserverless/workers"))["node_host"]
                return next((pack["error"] for pack in host["packs"] if pack["name"] == "leaver"), "")

            assert "leaver.py, line 2" in await until(given_up)
            graph = {
                "1": {"class_type": "StubAdd", "inputs": {"first": 1, "second": 2}},
                "9": {"class_type": "StubShow", "inputs": {"value": ["1", 0]}},
            }
            result = await client.run(graph)
            assert result.history["outputs"]["9"]["text"] == ["3"]
        assert "node pack leaver ended the process of all packs" in server.log()
    finally:
        server.stop()


async def test_built_in_nodes_are_there_when_the_process_of_packs_cannot_start(tmp_path: Path) -> None:
    shutil.copytree(STUBS, tmp_path / "custom_nodes" / "stub_nodes")
    broken = tmp_path / "broken" / "torch"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('a pack has replaced torch')\n")
    root = str(Path(__file__).parents[2])
    server = RunningServer.start(ServerOptions(tmp_path, env={"PYTHONPATH": f"{broken.parent}:{root}"}))
    try:
        async with Client(server.url) as client:
            async with asyncio.timeout(30):
                info = await client.get("/object_info")
            host = (await client.get("/comfyserverless/workers"))["node_host"]
            assert "KSampler" in info
            assert "StubAdd" not in info
            assert "cannot be started" in host["problem"]
        assert "The process that runs node packs cannot be started" in server.log()
    finally:
        server.stop()
