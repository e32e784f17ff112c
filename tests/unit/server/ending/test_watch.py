"""What a credential has opened ends with it; what cannot be brought back is not ended in haste."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from comfyserverless.control.accounts.account import Account, new_token, token_digest
from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.control.views import QueueChanged
from comfyserverless.core.ids import TenantId
from comfyserverless.server.access import Gate
from comfyserverless.server.ending.watch import MISSING_LOOKS, Endings
from comfyserverless.server.keys import HUB
from tests.support.fake_engine import FakeEngine
from tests.support.tenants import FixedAccounts
from tests.unit.server.conftest import StartClient

OLD, NEW = new_token(), new_token()
ALICE = Account(TenantId("alice"), tokens=(token_digest(OLD), token_digest(NEW)))
BOB = Account(TenantId("bob"))
TENANTS = {ALICE.tenant, BOB.tenant}


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("comfyserverless.server.ending.watch.EVERY_S", 0.01)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def next_kind(socket: aiohttp.ClientWebSocketResponse) -> str:
    return (await socket.receive(timeout=60)).type.name


@pytest.mark.parametrize("way", ["header", "address", "session"])
async def test_websocket_closes_with_the_token_that_opened_it(
    start_client: StartClient, engine: FakeEngine, way: str
) -> None:
    source = FixedAccounts(ALICE)
    client = await start_client(book=AccountBook(source))
    ways: Mapping[str, Mapping[str, Any]] = {
        "header": {"headers": bearer(OLD)},
        "address": {"params": {"token": OLD}},
        "session": {},
    }
    await client.post("/login", data={"token": OLD}, allow_redirects=False)
    old = await client.ws_connect("/ws", **ways[way])
    new = await client.ws_connect("/ws", headers=bearer(NEW))
    await old.receive_json()
    await new.receive_json()
    source.change(replace(ALICE, tokens=(token_digest(NEW),)))
    assert await next_kind(old) in ("CLOSED", "CLOSE", "ERROR")
    assert client.app is not None
    client.app[HUB].on_notice(QueueChanged(ALICE.tenant, 7))
    assert (await new.receive_json(timeout=60))["type"] == "status"
    assert not engine.stopped  # the account goes on


async def test_websocket_closes_when_its_session_is_logged_out(start_client: StartClient) -> None:
    client = await start_client(book=AccountBook(FixedAccounts(ALICE)))
    await client.post("/login", data={"token": OLD}, allow_redirects=False)
    socket = await client.ws_connect("/ws")
    await socket.receive_json()
    await client.post("/logout", allow_redirects=False)
    assert await next_kind(socket) in ("CLOSED", "CLOSE", "ERROR")


async def test_who_is_no_operator_any_more_hears_only_what_is_about_them(start_client: StartClient) -> None:
    source = FixedAccounts(replace(ALICE, is_operator=True))
    client = await start_client(book=AccountBook(source))
    assert client.app is not None
    hub = client.app[HUB]
    async with client.ws_connect("/ws?clientId=a", headers=bearer(OLD)) as socket:
        await socket.receive_json()
        body = {"clientId": "a", "enabled": True}
        await client.patch("/internal/logs/subscribe", json=body, headers=bearer(OLD))
        source.change(ALICE)
        heard = ["of the server"]
        while heard:  # until the change is seen
            hub.send_log({"entries": ["of the server"]})
            hub.send_log({"entries": ["own"]}, ALICE.tenant)
            heard = []
            while (line := (await socket.receive_json(timeout=60))["data"]["entries"]) != ["own"]:
                heard += line


def test_disabled_account_has_ended_at_once_and_a_missing_one_after_some_looks() -> None:
    source = FixedAccounts(ALICE, BOB)
    gate = Gate(AccountBook(source))
    endings = Endings()
    assert not endings.ended(gate, TENANTS)
    source.change(replace(ALICE, is_disabled=True))
    for _ in range(MISSING_LOOKS - 1):
        assert endings.ended(gate, TENANTS) == {ALICE.tenant}
    assert endings.ended(gate, TENANTS) == TENANTS
    gate.close()


def test_tenant_that_is_missing_only_while_a_file_is_written_keeps_its_work() -> None:
    source = FixedAccounts(ALICE, BOB)
    gate = Gate(AccountBook(source))
    endings = Endings()
    for accounts in [(ALICE,), (ALICE, BOB)] * 4:
        source.change(*accounts)
        assert not endings.ended(gate, TENANTS)
    gate.close()
