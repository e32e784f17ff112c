"""Messages of packs reach those who may see them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.control.views import QueueChanged
from comfyserverless.core.ids import DEFAULT_TENANT, TenantId
from comfyserverless.server.keys import HUB
from tests.support.fake_engine import FakeEngine
from tests.support.tenants import FixedAccounts
from tests.unit.server.conftest import StartClient
from tests.unit.server.test_access import ALICE, BOB, OPERATOR, bearer

Client = TestClient[Any, Any]


def send(
    engine: FakeEngine, event: str | int, data: Any, client_id: str | None = None, tenant: str = ""
) -> None:
    body = data if isinstance(data, bytes) else json.dumps(data)
    notice = {"event": event, "data": body, "client_id": client_id, "tenant": tenant}
    engine.hosting.host.listeners["send"](notice, None)


async def opened(client: Client, sid: str, name: str | None = None) -> Any:
    headers = {} if name is None else bearer(name)
    socket = await client.ws_connect(f"/ws?clientId={sid}", headers=headers)
    assert (await socket.receive_json())["type"] == "status"
    return socket


def end_messages(client: Client, *tenants: TenantId) -> None:
    """Send the state of the queue to all sockets of these tenants; all that was sent before comes before it."""
    assert client.app is not None
    for tenant in tenants or (DEFAULT_TENANT,):
        client.app[HUB].on_notice(QueueChanged(tenant, 7))


async def received(socket: Any) -> list[Any]:
    """Return what comes before the end of messages."""
    found: list[Any] = []
    while True:
        message = await socket.receive(timeout=60)
        content = message.json() if message.type.name == "TEXT" else message.data
        if isinstance(content, dict) and content["type"] == "status":
            return found
        found.append(content)


async def test_any_type_and_data_pass_untouched(client: Client, engine: FakeEngine) -> None:
    socket = await opened(client, "a")
    for event, data in (("pysssss/update", {"prompt_id": 1}), ("preview", [1, None]), ("own", "text")):
        send(engine, event, data)
    send(engine, 99, b"bytes")
    send(engine, "bad", float("nan"))
    end_messages(client)
    assert await received(socket) == [
        {"type": "pysssss/update", "data": {"prompt_id": 1}},
        {"type": "preview", "data": [1, None]},
        {"type": "own", "data": "text"},
        b"\x00\x00\x00\x63bytes",
        {"type": "bad", "data": None},
    ]


async def test_one_client_or_all(client: Client, engine: FakeEngine) -> None:
    first, second = await opened(client, "a"), await opened(client, "b")
    send(engine, "one", 1, client_id="b", tenant="default")
    send(engine, "all", 2, tenant="default")
    send(engine, "nobody", 3, client_id="c")
    end_messages(client)
    assert [message["type"] for message in await received(first)] == ["all"]
    assert [message["type"] for message in await received(second)] == ["one", "all"]


async def test_malformed_message_is_told_and_ends_nothing(
    client: Client, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    socket = await opened(client, "a")
    engine.hosting.host.listeners["send"]({"event": "x", "data": "{", "client_id": None}, None)
    send(engine, 1 << 40, b"")
    send(engine, "fine", 1)
    end_messages(client)
    assert [message["type"] for message in await received(socket)] == ["fine"]
    assert caplog.text.count("a message of a node pack cannot be sent") == 2


async def test_with_accounts_messages_stay_with_their_tenant(
    start_client: StartClient, engine: FakeEngine
) -> None:
    client = await start_client(book=AccountBook(FixedAccounts(ALICE, BOB, OPERATOR)))
    sockets = {name: await opened(client, f"sid-{name}", name) for name in ("alice", "bob", "ops")}
    also_same = await opened(client, "sid-bob", "alice")
    send(engine, "of alice", 1, tenant="alice")
    send(engine, "to bob of alice", 1, client_id="sid-ops", tenant="alice")
    send(engine, "of nobody", 1)
    send(engine, "to alice of nobody", 1, client_id="sid-alice")
    send(engine, "to two of nobody", 1, client_id="sid-bob")
    end_messages(client, ALICE.tenant, BOB.tenant, OPERATOR.tenant)
    got = {name: [each["type"] for each in await received(socket)] for name, socket in sockets.items()}
    assert got == {"alice": ["of alice", "to alice of nobody"], "bob": [], "ops": ["of nobody"]}
    assert [each["type"] for each in await received(also_same)] == ["of alice"]
