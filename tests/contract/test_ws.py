"""Run recorded prompts on the real server and compare what the websocket says with the recorded traces.

The traces build on each other (the cache of one run shows in the next), so one server plays them in order.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import struct
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.client import Client
from tests.support.recorded import stand_in
from tests.support.server import PATIENCE_S, RunningServer, ServerOptions
from tests.support.striking import until_idle

TRACES: dict[str, Any] = json.loads((Path(__file__).parent / "data/ws.json").read_text())
FLAGS = {"type": "feature_flags", "data": {"supports_preview_metadata": True}}
IN_ORDER = (
    "simple_first",
    "simple_fully_cached",
    "simple_partly_cached",
    "sd15_txt2img",
    "sd15_txt2img_preview_latent2rgb",
    "two_outputs_one_invalid",
)


def shown(message: dict[str, Any]) -> tuple[Any, ...]:
    """Reduce a message to what has to be equal: its type, its keys, and the nodes and numbers in it."""
    if "_binary" in message:
        return ("binary", struct.unpack(">I", message["_head"][:4])[0])
    kind, data = message["type"], message["data"]
    if kind == "status":
        return (kind, data["status"]["exec_info"]["queue_remaining"])
    if kind == "progress_state":
        states = {node: (each["value"], each["max"], each["state"]) for node, each in data["nodes"].items()}
        return (kind, states, sorted(next(iter(data["nodes"].values()))))
    details = [data.get(key) for key in ("node", "value", "max", "nodes", "node_id", "node_type", "executed")]
    return (kind, sorted(data), *details, sorted(data.get("output") or {}))


def is_step(entry: tuple[Any, ...]) -> bool:
    """Tell whether a message only reports a step; how many there are depends on the moment of an interrupt."""
    if entry[0] == "progress_state":
        return any(value > 0 and state == "running" for value, _, state in entry[1].values())
    return entry[0] == "progress"


def recorded(name: str) -> list[tuple[Any, ...]]:
    """Return a trace without the two messages of the connection."""
    messages = TRACES[name]["messages"][2:]
    for message in messages:
        if isinstance(message.get("_head"), str):
            message["_head"] = base64.b64decode(message["_head"])
    return [shown(message) for message in messages]


async def next_message(socket: aiohttp.ClientWebSocketResponse) -> dict[str, Any]:
    message = await socket.receive(timeout=PATIENCE_S)
    if message.type is aiohttp.WSMsgType.BINARY:
        return {"_binary": len(message.data), "_head": message.data}
    assert message.type is aiohttp.WSMsgType.TEXT, message
    body: dict[str, Any] = json.loads(message.data)
    return body


async def listen(client: Client, runs: int = 1) -> list[dict[str, Any]]:
    """Collect messages until `runs` prompts ended."""
    messages: list[dict[str, Any]] = []
    while runs:
        messages.append(await next_message(client.socket))
        runs -= messages[-1].get("type") == "executing" and messages[-1]["data"]["node"] is None
    return messages


async def greet(client: Client) -> None:
    """Take the first message, and exchange flags."""
    first = await next_message(client.socket)
    assert first["type"] == "status"
    assert first["data"]["sid"] == client.client_id
    await client.socket.send_json(FLAGS)
    assert (await next_message(client.socket))["type"] == "feature_flags"


def submission(server: RunningServer, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a recorded submission, with nodes that exist."""
    return {**fields, "prompt": stand_in(fields["prompt"], server.folder("input"))}


def endless(name: str) -> dict[str, Any]:
    """Return the first recorded submission of a trace, changed so that it takes many minutes on any machine."""
    fields: dict[str, Any] = copy.deepcopy(TRACES[name]["prompts"][0])
    fields["prompt"]["3"]["inputs"]["steps"] = 10_000
    fields["prompt"]["5"]["inputs"] |= {"width": 256, "height": 256}
    return fields


@pytest.fixture(scope="module")
def played(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Play the traces one after the other on a fresh server; returns their messages and history entries."""

    async def play(server: RunningServer) -> dict[str, Any]:
        results = {}
        for name in IN_ORDER:
            async with Client(server.url) as client:
                await greet(client)
                prompt_id = await client.submit(**submission(server, TRACES[name]["prompts"][0]))
                messages = await listen(client)
                results[name] = (messages, (await client.get(f"/history/{prompt_id}"))[prompt_id])
        return results

    server = RunningServer.start(ServerOptions(tmp_path_factory.mktemp("traces"), models=tiny_models))
    try:
        return asyncio.run(play(server))
    finally:
        server.stop()


@pytest.mark.parametrize("name", IN_ORDER)
def test_messages_of_a_run_are_the_recorded_ones(played: Any, name: str) -> None:
    assert [shown(message) for message in played[name][0]] == recorded(name)


@pytest.mark.parametrize("name", IN_ORDER)
def test_history_of_a_run_is_the_recorded_one(played: Any, name: str) -> None:
    (entry,) = next(iter(TRACES[name]["history"].values())).values()
    seen = played[name][1]
    assert seen.keys() == entry.keys()
    assert seen["prompt"][2].keys() == entry["prompt"][2].keys()
    assert seen["prompt"][4] == entry["prompt"][4]
    assert seen["prompt"][3].keys() == entry["prompt"][3].keys()
    assert seen["meta"] == entry["meta"]
    assert seen["outputs"].keys() == entry["outputs"].keys()
    assert seen["status"]["status_str"] == entry["status"]["status_str"]
    assert [message[0] for message in seen["status"]["messages"]] == [
        message[0] for message in entry["status"]["messages"]
    ]


async def test_interrupted_run_ends_like_the_recorded_one(server: RunningServer) -> None:
    async with Client(server.url) as client:
        await client.post("/free", {"unload_models": True, "free_memory": True})
        await until_idle(client)
    async with Client(server.url) as client:
        await greet(client)
        await client.submit(**endless("interrupted"))
        messages = []
        while not messages or messages[-1].get("type") != "progress":
            messages.append(await next_message(client.socket))
        await client.post("/interrupt", {})
        messages += await listen(client)
    ours = [shown(message) for message in messages]
    theirs = recorded("interrupted")
    assert [entry[0] for entry in ours if not is_step(entry)][-3:] == [entry[0] for entry in theirs][-3:]
    interruption = next(entry for entry in ours if entry[0] == "execution_interrupted")
    expected = next(entry for entry in theirs if entry[0] == "execution_interrupted")
    assert interruption[:-2] == expected[:-2]


async def test_deleted_prompt_never_runs_and_interrupt_lets_the_next_one_run(server: RunningServer) -> None:
    async with Client(server.url) as client:
        await until_idle(client)
    async with Client(server.url) as client:
        await greet(client)
        name = "three_queued_delete_one_interrupt_first"
        prompts = [endless(name), *TRACES[name]["prompts"][1:]]
        first, second, third = [await client.submit(**submission(server, fields)) for fields in prompts]
        messages = []
        while not messages or messages[-1].get("type") != "progress":
            messages.append(await next_message(client.socket))
        queue = await client.get("/queue")
        assert [item[1] for item in queue["queue_running"]] == [first]
        assert sorted(item[1] for item in queue["queue_pending"]) == sorted([second, third])
        await client.post("/queue", {"delete": [second]})
        await client.post("/interrupt", {"prompt_id": third})
        await client.post("/interrupt", {"prompt_id": first})
        messages += await listen(client, runs=2)
        history = await client.get("/history")
    ended = [message["data"]["prompt_id"] for message in messages if message.get("type") == "execution_start"]
    assert ended == [first, third]
    assert history[first]["status"]["status_str"] == "error"
    assert history[third]["status"]["status_str"] == "success"
    assert second not in history
    remaining = [
        message["data"]["status"]["exec_info"]["queue_remaining"]
        for message in messages
        if message.get("type") == "status"
    ]
    assert max(remaining) == 3
    assert remaining[-1] == 0


async def test_client_that_reconnects_mid_run_learns_the_node_and_gets_old_previews(
    server: RunningServer,
) -> None:
    fields = endless("interrupted")
    fields["prompt"]["3"]["inputs"]["seed"] = 77
    fields["extra_data"] = {"preview_method": "latent2rgb"}
    async with Client(server.url) as client:
        await until_idle(client)
    async with Client(server.url, "again") as first:
        await greet(first)
        await first.submit(**fields)
        while (await next_message(first.socket)).get("type") != "progress":
            pass
    async with Client(server.url, "again") as second:
        messages = [await next_message(second.socket) for _ in range(8)]
        while "_binary" not in messages[-1]:  # previews are drawn beside the steps, when there is time
            messages.append(await next_message(second.socket))
        await second.post("/interrupt", {})
        await listen(second)
    assert messages[0]["data"]["sid"] == "again"
    assert messages[1] == {"type": "executing", "data": {"node": "3"}}
    kinds = [message.get("type") for message in messages[2:6]]
    assert kinds == ["execution_start", "execution_cached", "progress_state", "executing"]
    assert messages[4]["data"]["nodes"]["3"]["state"] == "running"
    assert messages[5]["data"]["node"] == "3"
    frames = [message["_head"][:4] for message in messages if "_binary" in message]
    assert frames
    assert set(frames) == {struct.pack(">I", 1)}
