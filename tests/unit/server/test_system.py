"""The server describes itself with the recorded fields, and shows folders and console lines to the page."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from comfyserverless.control.views import WorkerView
from comfyserverless.core.config import Folders
from tests.support.fake_engine import FakeEngine
from tests.unit.server.conftest import StartClient

Client = TestClient[Any, Any]
RECORDED = json.loads((Path(__file__).parents[2] / "contract/data/get.json").read_text())
GPU = WorkerView(
    slot="w0",
    worker="w0.0",
    pid=7,
    state="ready",
    restarts=0,
    device_name="cuda:0 H200",
    device_kind="cuda",
    device_index=0,
    device_total_bytes=1000,
    device_free_bytes=400,
    resident_bytes=500,
    arena_used_bytes=1,
    arena_bytes=2,
    weights_bytes=300,
    running=("denoise.step",),
    torch_version="2.14.1",
)


async def test_stats_have_the_recorded_fields(client: Client) -> None:
    recorded = RECORDED["/system_stats"]["body"]
    shown = await (await client.get("/system_stats")).json()
    assert recorded["system"].keys() <= shown["system"].keys()
    assert shown["devices"][0].keys() == recorded["devices"][0].keys()
    for key in ("ram_total", "ram_free"):
        assert isinstance(shown["system"][key], int)
        assert shown["system"][key] > 0


async def test_arguments_are_a_list_of_texts(start_client: StartClient) -> None:
    client = await start_client(argv=("comfyserverless", "serve"))
    system = (await (await client.get("/system_stats")).json())["system"]
    assert system["argv"] == ["comfyserverless", "serve"]


async def test_required_frontend_is_not_above_the_served_one(client: Client) -> None:
    system = (await (await client.get("/api/system_stats")).json())["system"]
    assert system["required_frontend_version"] == "1.58.1"


async def test_devices_and_torch_are_those_of_the_workers(client: Client, engine: FakeEngine) -> None:
    engine.views = [GPU]
    stats = await (await client.get("/system_stats")).json()
    assert stats["system"]["pytorch_version"] == "2.14.1"
    assert stats["devices"] == [
        {
            "name": "cuda:0 H200",
            "type": "cuda",
            "index": 0,
            "vram_total": 1000,
            "vram_free": 400,
            "torch_vram_total": 500,
            "torch_vram_free": 0,
        }
    ]


async def test_workers_are_shown_with_what_they_run(client: Client, engine: FakeEngine) -> None:
    engine.views = [GPU]
    workers = (await (await client.get("/api/comfyserverless/workers")).json())["workers"]
    assert workers[0]["running"] == ["denoise.step"]


async def test_features_advertise_only_what_is_there(start_client: StartClient) -> None:
    client = await start_client(max_upload_bytes=123)
    features = await (await client.get("/api/features")).json()
    assert features["supports_preview_metadata"] is True
    assert features["max_upload_size"] == 123
    assert features["assets"] is False
    assert "supports_progress_text_metadata" not in features


async def test_console_lines_are_kept(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    assert client.app is not None
    from comfyserverless.server.keys import LOGS

    tape = client.app[LOGS]
    tape.emit(logging.LogRecord("x", logging.INFO, "file", 1, "hello %s", ("you",), None))
    raw = await (await client.get("/internal/logs/raw")).json()
    assert raw["entries"][-1]["m"] == "hello you\n"
    text = await (await client.get("/internal/logs")).json()
    assert text == f"{raw['entries'][-1]['t']} - hello you\n"


async def test_folder_files_are_listed_newest_first(client: Client, folders: Folders) -> None:
    for age_s, name in enumerate(("new.png", "old.png", ".hidden")):
        (folders.input / name).write_bytes(b"")
        os.utime(folders.input / name, (1000 - age_s, 1000 - age_s))
    (folders.input / "sub").mkdir()
    assert await (await client.get("/internal/files/input")).json() == ["new.png", "old.png"]
    assert (await client.get("/internal/files/models")).status == 400


async def test_search_paths_are_shown(client: Client, folders: Folders) -> None:
    paths = await (await client.get("/internal/folder_paths")).json()
    assert str(folders.models[0] / "checkpoints") in paths["checkpoints"]
