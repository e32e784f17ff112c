"""The HTTP side of packs, from the port of a real server: routes, scripts, messages, prompts, progress."""

from __future__ import annotations

import asyncio
import json
import shutil
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.client import Client
from tests.support.gates import Gate
from tests.support.server import PATIENCE_S, RunningServer, ServerOptions
from tests.support.tenants import add_tenant

PACK = Path(__file__).parents[1] / "support" / "packs" / "web_nodes"


def install_pack(base: Path) -> None:
    """Put the pack into the custom_nodes folder of a server."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACK, base / "custom_nodes" / "web_nodes", ignore=ignored)


@pytest.fixture(scope="module")
def packs(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Return a server with the pack."""
    base = tmp_path_factory.mktemp("pack_http")
    install_pack(base)
    running = RunningServer.start(ServerOptions(base, models=tiny_models))
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
async def client(packs: RunningServer) -> AsyncIterator[Client]:
    """Return a client of the server, once its packs are loaded."""
    async with Client(packs.url) as client:
        assert "WebNodesTell" in await client.get("/object_info/WebNodesTell")
        yield client


def tell(text: str, to_client: bool = True) -> dict[str, Any]:
    return {"1": {"class_type": "WebNodesTell", "inputs": {"text": text, "to_client": to_client}}}


async def test_routes_are_reached_with_and_without_api(client: Client) -> None:
    for prefix in ("", "/api"):
        greeting = await client.get(f"{prefix}/web_nodes/greet/a%20b?x=1")
        assert greeting == {"hello": "a b", "query": {"x": "1"}}
        async with client.session.post(f"{prefix}/web_nodes/echo", data=b"\x00abc") as answer:
            assert (await answer.read(), answer.content_type) == (b"cba\x00", "application/x-own")
    async with client.session.get("/web_nodes/stream") as answer:
        assert answer.content_type == "text/event-stream"
        assert await answer.text() == "data: 0\n\ndata: 1\n\ndata: 2\n\n"
    async with client.session.ws_connect("/api/web_nodes/socket") as socket:
        await socket.send_str("hello")
        assert await socket.receive_str() == "HELLO"


async def test_files_of_the_application_itself_have_no_twin_and_take_ranges(client: Client) -> None:
    async with client.session.get("/web_nodes/static/data.txt", headers={"Range": "bytes=7-"}) as answer:
        assert (answer.status, await answer.text()) == (206, "content")
    async with client.session.get("/api/web_nodes/static/data.txt") as answer:
        assert answer.status == 404


async def test_scripts_are_listed_and_served(client: Client) -> None:
    urls = await client.get("/extensions")
    assert {"/extensions/web_nodes/main.js", "/extensions/web_nodes/lib/shout.js"} < set(urls)
    assert "/extensions/web_nodes_more/more.js" in urls
    async with client.session.get("/extensions/web_nodes/main.js") as answer:
        assert answer.content_type == "text/javascript"
        assert "registerExtension" in await answer.text()


async def test_folders_are_what_the_server_has(client: Client, packs: RunningServer) -> None:
    assert (await client.get("/web_nodes/places"))[0] == str(packs.folder("output"))
    assert "sd15_tiny.safetensors" in await client.get("/web_nodes/models/checkpoints")


async def test_model_folders_of_a_pack_are_seen_by_the_servers_own_nodes(client: Client) -> None:
    assert await client.get("/models/web_nodes_models") == ["brought.safetensors", "data.txt"]
    loader = (await client.get("/object_info/CheckpointLoaderSimple"))["CheckpointLoaderSimple"]
    names = loader["input"]["required"]["ckpt_name"][0]
    assert {"brought.safetensors", "sd15_tiny.safetensors"} <= set(names)


async def test_handler_that_fails_is_one_bad_answer(client: Client) -> None:
    async with client.session.get("/web_nodes/fail") as answer:
        assert answer.status == 500
    assert (await client.get("/web_nodes/greet/x"))["hello"] == "x"


async def test_handler_that_blocks_holds_up_nothing_of_the_server(client: Client, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    blocked = asyncio.create_task(client.session.get("/web_nodes/block", params={"gate": str(gate)}))
    try:
        for _ in range(20):
            assert "exec_info" in await client.get("/prompt")
        assert not blocked.done()
    finally:
        gate.open()
    async with await blocked as answer:
        assert await answer.text() == "at last"


async def test_prompt_is_edited_before_it_is_validated(client: Client) -> None:
    result = await client.run(tell("replace me"))
    assert result.outcome == "execution_success"
    assert result.history["outputs"]["1"]["text"] == ["replaced", "1"]
    assert result.history["prompt"][2]["1"]["inputs"]["text"] == "replaced"


async def test_node_sends_messages_progress_and_pictures(client: Client, packs: RunningServer) -> None:
    async with Client(packs.url) as other:
        prompt_id = await client.submit(tell("to one"))
        texts, frames = await everything(client, prompt_id)
        told = next(data for kind, data in texts if kind == "web_nodes/told")
        assert told == {"text": "to one", "node": "1"}
        progress = [data for kind, data in texts if kind == "progress"]
        assert [(each["value"], each["max"], each["node"]) for each in progress] == [
            (n, 3, "1") for n in (1, 2, 3)
        ]
        assert struct.pack(">I", 77) + b"to one" in frames
        previews = [frame for frame in frames if frame[:4] == struct.pack(">I", 1)]
        assert len(previews) == 3
        assert all(frame[8:10] == b"\xff\xd8" for frame in previews)
        await client.run(tell("to all", to_client=False))
        got = await other.socket.receive_json()
        while got["type"] == "status":
            got = await other.socket.receive_json()
        assert got == {"type": "web_nodes/told", "data": {"text": "to all", "node": "1"}}


async def everything(client: Client, prompt_id: str) -> tuple[list[tuple[str, Any]], list[bytes]]:
    """Return all messages until a prompt has ended, and all binary frames."""
    texts: list[tuple[str, Any]] = []
    frames: list[bytes] = []
    async for message in client.socket:
        if message.type is aiohttp.WSMsgType.BINARY:
            frames.append(message.data)
            continue
        body = json.loads(message.data)
        texts.append((body["type"], body["data"]))
        if (
            body["type"] == "executing"
            and body["data"]["node"] is None
            and body["data"]["prompt_id"] == prompt_id
        ):
            break
    return texts, frames


async def test_node_expands_with_ids_of_the_call(client: Client) -> None:
    graph = {"5": {"class_type": "WebNodesExpand", "inputs": {"text": "hi"}}}
    graph["6"] = {"class_type": "WebNodesTell", "inputs": {"text": ["5", 0], "to_client": True}}
    result = await client.run(graph)
    assert result.outcome == "execution_success", result.messages
    assert result.history["outputs"]["6"]["text"] == ["hi expanded", "6"]
    assert result.history["outputs"]["5.0.0.1"]["text"] == ["hi expanded", "5.0.0.1"]


async def test_handler_sees_the_queue_and_stops_what_runs(client: Client) -> None:
    await client.run({"6": {"class_type": "WebNodesTell", "inputs": {"text": "before", "to_client": True}}})
    prompt_id = await client.submit({"1": {"class_type": "WebNodesWait", "inputs": {}}})
    async for message in client.socket:
        if message.type is aiohttp.WSMsgType.TEXT and json.loads(message.data)["type"] == "progress":
            break
    shown = await client.get("/web_nodes/queue")
    assert [item[1] for item in shown["running"]] == [prompt_id]
    assert shown["running"][0][2]["1"]["class_type"] == "WebNodesWait"
    assert len(shown["history"]) == 1
    assert (await client.post("/web_nodes/stop", {}))[0] == 200
    assert (await client.listen(prompt_id)).outcome == "execution_interrupted"


async def test_host_that_a_handler_ends_comes_back_with_its_routes(client: Client) -> None:
    async with client.session.get("/web_nodes/die") as answer:
        assert answer.status == 502
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with client.session.get("/web_nodes/greet/again") as answer:
                if answer.status == 200:
                    break
            await asyncio.sleep(0.2)
    assert (await client.run(tell("after"))).outcome == "execution_success"


async def test_with_accounts_routes_messages_and_folders_are_the_tenants(
    tiny_models: Path, tmp_path: Path
) -> None:
    install_pack(tmp_path)
    tokens = {name: add_tenant(tmp_path, name) for name in ("alice", "bob")}
    server = RunningServer.start(ServerOptions(tmp_path, models=tiny_models))
    try:
        async with aiohttp.ClientSession(server.url) as nobody, nobody.get("/web_nodes/greet/x") as answer:
            assert answer.status == 401
        async with (
            Client(server.url, token=tokens["alice"]) as alice,
            Client(server.url, token=tokens["bob"]) as bob,
        ):
            assert "WebNodesTell" in await alice.get("/object_info")
            assert await alice.get("/web_nodes/places") == [str(tmp_path / "output" / "alice"), None]
            texts, _ = await everything(alice, await alice.submit(tell("for all of alice", to_client=False)))
            assert [data for kind, data in texts if kind == "web_nodes/told"]
            assert [data for kind, data in texts if kind == "web_nodes/asked"]
            texts, _ = await everything(bob, await bob.submit(tell("for all of bob", to_client=False)))
            told = [data["text"] for kind, data in texts if kind.startswith("web_nodes/")]
            assert told == ["for all of bob"]
    finally:
        server.stop()
