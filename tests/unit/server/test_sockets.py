"""Sockets get their client's messages in order; a client that does not read costs bounded memory."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import aiohttp
import aiohttp.web
import pytest
from aiohttp.test_utils import TestClient
from hypothesis import given
from hypothesis import strategies as st

from comfyserverless.control.views import (
    NodeExecuted,
    NodeFinished,
    NodePreview,
    NodeProgress,
    NodesCached,
    NodeStarted,
    QueueChanged,
    RunEnded,
    RunInterrupted,
    RunRecord,
    RunStarted,
    RunStatus,
    RunSucceeded,
)
from comfyserverless.core.ids import DEFAULT_TENANT, NodeId, PromptId, TenantId
from comfyserverless.server import sockets
from comfyserverless.server.keys import HUB
from comfyserverless.server.reconnects.missed import Entry, Frame
from comfyserverless.server.sockets import Backlog
from tests.support.fake_engine import FakeEngine

Client = TestClient[Any, Any]
Socket = aiohttp.ClientWebSocketResponse
RUN = PromptId("11111111-2222-3333-4444-555555555555")
FLAGS = {"type": "feature_flags", "data": {"supports_preview_metadata": True}}
JPEG = b"\xff\xd8"
SOFT_BYTES, HARD_BYTES = 400, 3200


async def connect(client: Client, sid: str = "", *, with_flags: bool = False) -> Socket:
    socket = await client.ws_connect(f"/ws?clientId={sid}" if sid else "/ws")
    assert (await receive(socket))["type"] == "status"
    if with_flags:
        await socket.send_json(FLAGS)
        assert (await receive(socket))["type"] == "feature_flags"
    return socket


async def receive(socket: Socket) -> Any:
    message = await socket.receive(timeout=60)
    assert message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY), message
    return json.loads(message.data) if message.type is aiohttp.WSMsgType.TEXT else message.data


async def types_until(socket: Socket, last: str) -> list[str]:
    """Collect message types up to `last`; binary frames are shown as `binary<number>`."""
    seen: list[str] = []
    while not seen or seen[-1] != last:
        message = await receive(socket)
        seen.append(f"binary{message[3]}" if isinstance(message, bytes) else message["type"])
    return seen


def common(client_id: str | None) -> tuple[PromptId, TenantId, str | None]:
    return RUN, DEFAULT_TENANT, client_id


def run_one_step(engine: FakeEngine, client_id: str | None) -> None:
    node = NodeId("3")
    engine.emit(
        RunStarted(*common(client_id), 1),
        NodeStarted(*common(client_id), node),
        NodeProgress(*common(client_id), node, 1, 2),
        NodePreview(*common(client_id), node, JPEG),
        RunEnded(*common(client_id)),
        QueueChanged(DEFAULT_TENANT, 0),
    )


async def test_first_message_is_the_queue_with_the_given_or_a_new_id(client: Client) -> None:
    for query, check in (("?clientId=me", lambda sid: sid == "me"), ("", lambda sid: len(sid) == 32)):
        socket = await client.ws_connect("/api/ws" + query)
        message = await receive(socket)
        assert message["data"]["status"] == {"exec_info": {"queue_remaining": 0}}
        assert check(message["data"]["sid"])


async def test_messages_of_a_job_go_to_its_client_only(client: Client, engine: FakeEngine) -> None:
    mine, other = await connect(client, "me"), await connect(client, "other")
    run_one_step(engine, "me")
    assert await types_until(mine, "status") == [
        "execution_start",
        "progress_state",
        "executing",
        "progress_state",
        "progress",
        "binary1",
        "executing",
        "status",
    ]
    assert await types_until(other, "status") == ["status"]


async def test_client_that_knows_metadata_gets_type_four_before_progress(
    client: Client, engine: FakeEngine
) -> None:
    socket = await connect(client, "me", with_flags=True)
    run_one_step(engine, "me")
    assert (await types_until(socket, "status"))[3:6] == ["progress_state", "binary4", "progress"]


async def test_progress_without_preview_is_sent_in_the_same_turn(client: Client, engine: FakeEngine) -> None:
    socket = await connect(client, "me")
    engine.emit(NodeProgress(*common("me"), NodeId("3"), 1, 2))
    assert await types_until(socket, "progress") == ["progress_state", "progress"]


async def test_job_without_client_is_seen_by_all_as_progress_and_type_one(
    client: Client, engine: FakeEngine
) -> None:
    both = [await connect(client, "a"), await connect(client, "b", with_flags=True)]
    run_one_step(engine, None)
    for socket in both:
        assert await types_until(socket, "status") == [
            "progress_state",
            "progress_state",
            "progress",
            "binary1",
            "status",
        ]


async def test_other_tenants_hear_nothing(client: Client, engine: FakeEngine) -> None:
    socket = await connect(client, "me")
    stranger = TenantId("stranger")
    engine.emit(QueueChanged(stranger, 7))
    engine.emit(RunInterrupted(RUN, stranger, None, NodeId("3"), "KSampler", (), 1))
    engine.emit(RunStarted(RUN, stranger, "me", 1))
    engine.emit(QueueChanged(DEFAULT_TENANT, 1))
    message = await receive(socket)
    assert message["data"] == {"status": {"exec_info": {"queue_remaining": 1}}}


async def test_reconnecting_client_learns_the_running_node(client: Client, engine: FakeEngine) -> None:
    record = RunRecord(RUN, DEFAULT_TENANT, 0, {}, {}, (), "me", 1, status=RunStatus.RUNNING)
    record.current_node = NodeId("3")
    engine.records[RUN] = record
    socket = await connect(client, "me")
    assert await receive(socket) == {"type": "executing", "data": {"node": "3"}}
    stranger = await connect(client, "other")
    engine.emit(QueueChanged(DEFAULT_TENANT, 1))
    assert await types_until(stranger, "status") == ["status"]


def running_record(client_id: str = "me") -> RunRecord:
    record = RunRecord(RUN, DEFAULT_TENANT, 0, {}, {}, (), client_id, 1, status=RunStatus.RUNNING)
    started = RunStarted(*common(client_id), 5)
    cached = NodesCached(*common(client_id), (NodeId("1"),), 6)
    record.messages = [started, cached]
    record.outputs = {NodeId("1"): {"images": [{"filename": "a.png", "subfolder": "", "type": "temp"}]}}
    record.current_node = NodeId("3")
    return record


@pytest.mark.parametrize("heard_until", [None, "execution_start", "executing", "progress"])
async def test_client_that_comes_back_learns_all_of_its_running_prompt(
    client: Client, engine: FakeEngine, heard_until: str | None
) -> None:
    record = running_record()
    happenings = [
        *record.messages,
        NodeStarted(*common("me"), NodeId("3")),
        NodeProgress(*common("me"), NodeId("3"), 2, 4),
    ]
    first = await connect(client, "me")
    if heard_until is None:
        await first.close()
        await until(lambda: not client.app[HUB].tenants())
    engine.emit(*happenings)
    if heard_until is not None:
        await types_until(first, heard_until)
        await first.close()
    engine.records[RUN] = record
    back = await connect(client, "me")
    assert await receive(back) == {"type": "executing", "data": {"node": "3"}}
    place = {"node": "3", "display_node": "3", "prompt_id": RUN}
    assert await receive(back) == {"type": "execution_start", "data": {"prompt_id": RUN, "timestamp": 5}}
    assert (await receive(back))["data"]["nodes"] == ["1"]
    shown = await receive(back)
    assert (shown["type"], shown["data"]["node"]) == ("executed", "1")
    assert shown["data"]["output"] == record.outputs[NodeId("1")]
    progress = (await receive(back))["data"]["nodes"]["3"]
    assert (progress["value"], progress["max"], progress["state"]) == (2, 4, "running")
    assert await receive(back) == {"type": "executing", "data": place}
    engine.emit(NodeFinished(*common("me"), NodeId("3")), QueueChanged(DEFAULT_TENANT, 1))
    assert await types_until(back, "status") == ["progress_state", "status"]


async def test_client_that_comes_back_at_the_very_end_of_a_run_learns_how_it_ended(
    client: Client, engine: FakeEngine
) -> None:
    record = running_record()
    record.messages.append(RunSucceeded(*common("me"), 9))
    record.ended_ms = 9
    engine.records[RUN] = record
    back = await connect(client, "me")
    assert (await types_until(back, "execution_success"))[-2:] == ["executed", "execution_success"]
    engine.emit(RunEnded(*common("me")))
    assert (await receive(back))["data"] == {"node": None, "prompt_id": RUN}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  (nothing tells when a socket was removed)
            await asyncio.sleep(0)


async def test_end_that_came_while_the_client_was_away_is_told_once(client: Client, engine: FakeEngine) -> None:
    first = await connect(client, "me")
    engine.emit(RunStarted(*common("me"), 1), NodeStarted(*common("me"), NodeId("3")))
    await types_until(first, "executing")
    await first.close()
    await until(lambda: not client.app[HUB].tenants())
    ui = {"images": []}
    engine.emit(
        NodeProgress(*common("me"), NodeId("3"), 1, 2),
        NodePreview(*common("me"), NodeId("3"), JPEG),
        NodeExecuted(*common("me"), NodeId("3"), ui),
        NodeStarted(*common("me"), NodeId("4")),
        RunSucceeded(*common("me"), 9),
        QueueChanged(DEFAULT_TENANT, 0),
        RunEnded(*common("me")),
    )
    stranger = await connect(client, "other")
    back = await connect(client, "me")
    messages = [await receive(back) for _ in range(3)]
    assert [message["type"] for message in messages] == ["executed", "execution_success", "executing"]
    assert messages[-1]["data"] == {"node": None, "prompt_id": RUN}
    await back.close()
    again = await connect(client, "me")
    engine.emit(QueueChanged(DEFAULT_TENANT, 1))
    for socket in (again, stranger):
        assert await types_until(socket, "status") == ["status"]


async def test_new_page_is_told_of_no_run(client: Client, engine: FakeEngine) -> None:
    engine.records[RUN] = running_record("somebody")
    for sid in ("", "me"):
        socket = await connect(client, sid)
        engine.emit(QueueChanged(DEFAULT_TENANT, 1))
        assert await types_until(socket, "status") == ["status"]
        await socket.close()


async def test_slow_client_holds_up_nobody(client: Client, engine: FakeEngine) -> None:
    slow, quick = await connect(client, "me"), await connect(client, "other")
    big = {"text": ["x" * 200_000]}
    for _ in range(40):
        engine.emit(NodeExecuted(*common("me"), NodeId("3"), big))
    engine.emit(QueueChanged(DEFAULT_TENANT, 3))
    assert await types_until(quick, "status") == ["status"]
    assert (await types_until(slow, "status")).count("executed") == 40


async def test_flags_are_forgotten_with_the_socket(client: Client, engine: FakeEngine) -> None:
    first = await connect(client, "me", with_flags=True)
    await first.close()
    second = await connect(client, "me")
    run_one_step(engine, "me")
    assert "binary1" in await types_until(second, "status")


async def test_replaced_socket_stays_open_and_its_close_keeps_the_new_one(
    client: Client, engine: FakeEngine
) -> None:
    old, new = await connect(client, "me"), await connect(client, "me")
    engine.emit(QueueChanged(DEFAULT_TENANT, 1))
    assert await types_until(new, "status") == ["status"]
    assert not old.closed
    await old.close()
    await asyncio.sleep(0)
    engine.emit(QueueChanged(DEFAULT_TENANT, 2))
    assert (await receive(new))["data"]["status"]["exec_info"]["queue_remaining"] == 2


async def test_flags_count_only_as_the_first_message(client: Client, engine: FakeEngine) -> None:
    socket = await connect(client, "me")
    for text in ("{", "[]", '{"type": "other"}', "[" * 100_000, json.dumps(FLAGS)):
        await socket.send_str(text)
    run_one_step(engine, "me")
    assert "binary1" in await types_until(socket, "status")


async def test_log_lines_reach_subscribers_only(client: Client) -> None:
    socket = await connect(client, "me")
    answer = await client.patch("/internal/logs/subscribe", json={"clientId": "me", "enabled": True})
    assert answer.status == 200
    assert client.app is not None
    hub = client.app[HUB]
    hub.send_log({"entries": [{"t": "now", "m": "hello"}], "size": None})
    assert (await receive(socket))["data"]["entries"][0]["m"] == "hello"
    await client.patch("/internal/logs/subscribe", json={"clientId": "me", "enabled": False})
    hub.send_log({"entries": []})
    hub.on_notice(QueueChanged(DEFAULT_TENANT, 0))
    assert await types_until(socket, "status") == ["status"]


async def test_client_that_does_not_read_is_cut_off(
    client: Client, engine: FakeEngine, monkeypatch: Any
) -> None:
    monkeypatch.setattr(sockets, "Backlog", partial(Backlog, hard_limit_bytes=1 << 18))
    socket = await connect(client, "me")
    assert client.app is not None
    hub = client.app[HUB]
    while hub._writers:
        for _ in range(200):
            engine.emit(RunStarted(*common("me"), 1))
        await asyncio.sleep(0)
    assert not hub._by_id
    await socket.close()


async def test_server_that_stops_closes_its_sockets(client: Client) -> None:
    socket = await connect(client, "me")
    closing = asyncio.ensure_future(client.server.close())
    message = await socket.receive(timeout=60)
    assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
    await socket.close()
    await closing


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=200))
def test_backlog_keeps_required_frames_in_order_within_its_limits(
    events: list[tuple[int, bool, bool]],
) -> None:
    backlog, required, sent = Backlog(SOFT_BYTES, HARD_BYTES), [], []
    for number, (size_units, is_droppable, is_read) in enumerate(events):
        frame = f"{number}:" + "x" * (100 * size_units)
        is_within = backlog.push(Entry(frame if number % 2 else frame.encode(), is_droppable))
        assert is_within == (backlog.waiting_bytes <= HARD_BYTES)
        if not is_droppable:
            required.append(number)
        if is_read and backlog.entries:
            sent.append(number_of(backlog.pop()))
        assert backlog.waiting_bytes == sum(len(entry.frame) for entry in backlog.entries)
        assert backlog.droppable_frames == sum(entry.is_droppable for entry in backlog.entries)
    while backlog.entries:
        sent.append(number_of(backlog.pop()))
    assert [number for number in sent if number in required] == required


def number_of(frame: Frame) -> int:
    text = frame if isinstance(frame, str) else frame.decode()
    return int(text.partition(":")[0])


def test_backlog_drops_droppable_frames_beyond_the_soft_limit() -> None:
    backlog = Backlog(SOFT_BYTES, HARD_BYTES)
    for _ in range(100):
        assert backlog.push(Entry(b"x" * 100, is_droppable=True))
    assert backlog.waiting_bytes <= SOFT_BYTES + 100


def test_pictures_are_dropped_before_progress() -> None:
    backlog = Backlog(SOFT_BYTES, HARD_BYTES)
    for _ in range(3):
        backlog.push(Entry("progress", is_droppable=True))
        backlog.push(Entry(b"x" * 150, is_droppable=True))
    backlog.push(Entry("needed"))
    assert [entry.frame for entry in backlog.entries] == ["progress"] * 3 + ["needed"]
    backlog.push(Entry("y" * SOFT_BYTES))
    backlog.push(Entry("last", is_droppable=True))
    assert [entry.frame[0] for entry in backlog.entries] == ["n", "y"]


async def test_peer_that_leaves_before_the_answer_to_its_ping_is_no_fault(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(aiohttp.web.WebSocketResponse, "pong", fail)
    socket = await connect(client)
    await socket.ping()
    await socket.receive(timeout=60)
    assert socket.closed
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
