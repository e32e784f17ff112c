"""End servers in every way and start them again on the same folder: nothing accepted is lost or saved twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sqlite3
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.client import Client
from tests.support.gates import Gate
from tests.support.server import RunningServer, ServerOptions

KILLS = int(os.environ.get("COMFYSERVERLESS_TEST_KILLS", "6"))
"""How often the server is killed under load."""

START = Callable[..., RunningServer]
BATCH = 2
WITHIN_S = 240.0
"""Starting workers takes seconds; on a busy machine a minute, and here they start many times."""

AT_ONCE = 3
STATUS = "SELECT status FROM prompts WHERE prompt_id = ?"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[START]:
    """Return a function that starts servers on one folder, one after the other."""
    started: list[RunningServer] = []

    def run(*flags: str) -> RunningServer:
        started.append(RunningServer.start(ServerOptions(tmp_path / "base", flags=flags)))
        return started[-1]

    yield run
    for running in started:
        if running.process.poll() is None:
            running.stop()


def kill(server: RunningServer) -> None:
    """End the server process as a crash does; its workers end by themselves."""
    server.process.kill()
    server.process.wait(WITHIN_S)


def save_graph(prefix: str, color: int = 255) -> dict[str, Any]:
    size = {"width": 32, "height": 32, "batch_size": BATCH, "color": color}
    return {
        "1": {"class_type": "EmptyImage", "inputs": size},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": prefix}},
    }


def held_graph(prefix: str, gate: Gate) -> dict[str, Any]:
    """Return a graph that runs until the gate is open."""
    graph = save_graph(prefix)
    graph["3"] = {"class_type": "Gate", "inputs": {"image": ["1", 0], "gate": str(gate)}}
    graph["2"]["inputs"]["images"] = ["3", 0]
    return graph


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """Return a gate; the servers have the node that waits for it."""
    made = Gate(tmp_path)
    made.install_pack(tmp_path / "base")
    return made


class Load:
    """Send prompts for as long as it runs; remembers which ones the server has answered with 200."""

    def __init__(self) -> None:
        self.accepted: list[str] = []
        self.sent: list[str] = []

    async def send(self, url: str) -> None:
        """Send one prompt after the other until the server is gone."""
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            async with aiohttp.ClientSession(url) as session:
                while True:
                    prompt_id = str(uuid.uuid4())
                    self.sent.append(prompt_id)
                    graph = save_graph(prompt_id, color=len(self.sent))
                    async with session.post(
                        "/prompt", json={"prompt": graph, "prompt_id": prompt_id}
                    ) as answer:
                        assert answer.status == 200, await answer.text()
                        self.accepted.append(prompt_id)
                    await asyncio.sleep(0.05)


async def settled_history(url: str, within_s: float = WITHIN_S) -> dict[str, Any]:
    """Return history once nothing waits or runs any more."""
    async with asyncio.timeout(within_s), Client(url) as client:
        while True:
            queue = await client.get("/queue")
            if not queue["queue_running"] and not queue["queue_pending"]:
                history: dict[str, Any] = await client.get("/history")
                return history
            await asyncio.sleep(0.2)


def files_of(history: dict[str, Any]) -> list[str]:
    outputs = [output for entry in history.values() for output in entry["outputs"].values()]
    return [image["filename"] for output in outputs for image in output["images"]]


@pytest.mark.timeout(2 * WITHIN_S * (KILLS + 1))
async def test_killed_under_load_no_accepted_prompt_is_lost_and_no_file_is_saved_twice(start: START) -> None:
    seed = int(os.environ.get("COMFYSERVERLESS_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
    moments, load = random.Random(seed), Load()
    for _ in range(KILLS):
        server = start("--workers", "1")
        if moments.random() < 0.7:  # the others are killed while their workers are still loading
            async with Client(server.url) as client:
                await client.wait_for_workers(within_s=WITHIN_S)
        accepted = len(load.accepted)
        senders = [asyncio.create_task(load.send(server.url)) for _ in range(AT_ONCE)]
        async with asyncio.timeout(WITHIN_S):
            while len(load.accepted) < accepted + AT_ONCE:  # noqa: ASYNC110  (the senders have no event for it)
                await asyncio.sleep(0.005)
        await asyncio.sleep(moments.uniform(0.0, 1.5))
        kill(server)
        await asyncio.gather(*senders)
    server = start("--workers", "1")
    history = await settled_history(server.url)
    lost = [prompt_id for prompt_id in load.accepted if prompt_id not in history]
    assert lost == [], f"seed {seed}"
    on_disk = Counter(path.name.partition("_")[0] for path in server.folder("output").iterdir())
    for prompt_id, entry in history.items():
        is_whole = entry["status"]["completed"] or "ServerLostError" not in str(entry["status"]["messages"])
        assert on_disk[prompt_id] == BATCH if is_whole else on_disk[prompt_id] <= BATCH, entry
    assert set(on_disk) <= set(history), "no file belongs to a prompt that nobody knows"
    shown = files_of(history)
    assert len(shown) == len(set(shown))
    assert all((server.folder("output") / name).exists() for name in shown)
    server.stop()
    with contextlib.closing(sqlite3.connect(server.folder("user") / "records.sqlite3")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("SELECT COUNT(*) FROM saves").fetchone() == (0,)


async def test_prompt_that_was_running_at_two_crashes_is_not_tried_again(start: START, gate: Gate) -> None:
    prompt_id = ""
    for nth in range(2):
        server = start()
        async with Client(server.url) as client:
            await client.wait_for_workers(within_s=WITHIN_S)
            if nth == 0:
                prompt_id = await client.submit(held_graph("poison", gate))
                await client.submit(save_graph("innocent"))
            await running(server, prompt_id)
        kill(server)
    server = start()
    history = await settled_history(server.url)
    entry = history.pop(prompt_id)
    assert entry["status"]["status_str"] == "error"
    kind, failure = entry["status"]["messages"][-1]
    assert (kind, failure["exception_type"]) == ("execution_error", "ServerLostError")
    assert "2 times while this prompt was running" in failure["exception_message"]
    assert [each["status"]["status_str"] for each in history.values()] == ["success"]
    assert "not tried again" in server.log()


async def running(server: RunningServer, prompt_id: str, within_s: float = WITHIN_S) -> None:
    """Wait until a prompt runs, and that is on disk; the queue shows it from a little earlier on."""
    path = server.folder("user") / "records.sqlite3"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as records:
        async with asyncio.timeout(within_s):
            while records.execute(STATUS, (prompt_id,)).fetchone() != ("running",):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_stopped_server_leaves_what_it_could_not_end_to_the_next_one(start: START, gate: Gate) -> None:
    server = start("--drain-timeout", "0.2")
    async with Client(server.url) as client:
        await client.wait_for_workers(within_s=WITHIN_S)
        slow = await client.submit(held_graph("slow", gate))
        waiting = [await client.submit(save_graph(f"w{nth}")) for nth in range(3)]
        await client.post("/queue", {"delete": [waiting.pop()]})
        await running(server, slow)
    server.stop()
    server = start()
    async with Client(server.url) as client:
        queue = await client.get("/queue")
        items = sorted(queue["queue_running"] + queue["queue_pending"])
        assert [item[1] for item in items] == [slow, *waiting]
        last = await client.submit(save_graph("later"))
        gate.open()
        history = await settled_history(server.url)
    assert list(history) == [slow, *waiting, last]
    assert {entry["status"]["status_str"] for entry in history.values()} == {"success"}


async def test_stopped_server_lets_a_running_prompt_end_and_accepts_nothing_meanwhile(
    start: START, gate: Gate
) -> None:
    server = start("--drain-timeout", "600")
    async with Client(server.url) as client:
        await client.wait_for_workers(within_s=WITHIN_S)
        slow = await client.submit(held_graph("slow", gate))
        waiting = await client.submit(save_graph("waiting"))
        await running(server, slow)
        server.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WITHIN_S):
            while True:
                status, answer = await client.post("/prompt", {"prompt": save_graph("late")})
                if status == 503:
                    break
        assert "stopping" in answer["error"]["message"]
    gate.open()
    server.process.wait(WITHIN_S)
    server = start()
    async with Client(server.url) as client:
        assert (await client.get(f"/history/{slow}"))[slow]["status"]["completed"]
        history = await settled_history(server.url)
    assert list(history)[:2] == [slow, waiting]


async def test_history_and_usage_outlive_the_server_and_deleted_history_stays_deleted(start: START) -> None:
    server = start()
    async with Client(server.url) as client:
        await client.wait_for_workers(within_s=WITHIN_S)
        runs = [await client.run(save_graph(name)) for name in ("a", "b")]
        await client.post("/history", {"delete": [runs[0].prompt_id]})
        usage = (await client.get("/comfyserverless/tenants"))["tenants"][0]["service_s"]
    kill(server)
    server = start()
    async with Client(server.url) as client:
        assert await client.get("/history") == {runs[1].prompt_id: runs[1].history}
        job = await client.get(f"/api/jobs/{runs[1].prompt_id}")
        assert (job["status"], job["outputs_count"]) == ("completed", BATCH)
        assert (await client.get("/api/jobs"))["pagination"]["total"] == 1
        restored = (await client.get("/comfyserverless/tenants"))["tenants"][0]["service_s"]
        assert restored == pytest.approx(usage)
        assert sum(restored.values()) > 0


async def test_second_server_on_the_folder_is_refused_and_disturbs_nothing(start: START) -> None:
    server = start()
    async with Client(server.url) as client:
        await client.wait_for_workers(within_s=WITHIN_S)
        preview = save_graph("x")
        preview["2"] = {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}}
        run = await client.run(preview)
        command = server.options.command(0)
        second = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        _, said = await second.communicate()
        assert second.returncode == 2
        assert f"Another server (process {server.process.pid}) uses the folder" in said.decode()
        assert await client.image(run.images()[0])


async def test_damaged_records_are_moved_aside_and_the_server_starts(start: START) -> None:
    server = start()
    server.stop()
    records = server.folder("user") / "records.sqlite3"
    records.write_bytes(b"\x17" * 10_000)
    server = start()
    assert "is damaged" in server.log()
    (aside,) = server.folder("user").glob("records.sqlite3.damaged-*")
    assert aside.read_bytes() == b"\x17" * 10_000
    async with Client(server.url) as client:
        assert json.dumps(await client.get("/history")) == "{}"
        await client.submit(save_graph("a"))
