"""Who sends a request is decided once, before any route sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from comfyserverless.control.accounts.account import Account, Limits, new_token, token_digest
from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.control.accounts.throttle import MAX_FAILURES
from comfyserverless.control.views import QueueChanged, RunStatus
from comfyserverless.core.ids import TenantId
from comfyserverless.server.access import COOKIE
from comfyserverless.server.keys import HUB
from tests.support.fake_engine import FakeEngine
from tests.support.tenants import FixedAccounts
from tests.unit.server.conftest import StartClient

TOKENS = {name: new_token() for name in ("alice", "bob", "ops")}
ALICE, BOB, OPS = (Account(TenantId(name), tokens=(token_digest(token),)) for name, token in TOKENS.items())
OPERATOR = replace(OPS, is_operator=True)
Client = TestClient[Any, Any]


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[name]}"}


@pytest.fixture
def source() -> FixedAccounts:
    return FixedAccounts(ALICE, BOB, OPERATOR)


@pytest.fixture
async def guarded(start_client: StartClient, source: FixedAccounts) -> Client:
    return await start_client(book=AccountBook(source))


async def log_in(client: Client, name: str, **fields: Any) -> Any:
    return await client.post("/login", data={"token": TOKENS[name]}, allow_redirects=False, **fields)


async def test_without_accounts_nobody_is_asked(client: Client) -> None:
    assert (await client.get("/prompt")).status == 200
    assert (await client.get("/login")).status == 404
    assert "Vary" not in (await client.get("/prompt")).headers


async def test_refusal_has_the_shape_of_its_route(guarded: Client) -> None:
    answer = await guarded.post("/prompt", json={})
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert (await answer.json())["error"]["type"] == "unauthorized"
    assert (await (await guarded.get("/api/jobs")).json()).keys() == {"error"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Basic {TOKENS['alice']}"},
        {"Authorization": TOKENS["alice"]},
        {"X-API-Key": TOKENS["alice"][:-1]},
        {"Cookie": f"{COOKIE}={TOKENS['alice']}"},
        {"Comfy-User": "alice"},
    ],
)
async def test_what_is_no_credential_lets_nobody_in(guarded: Client, headers: dict[str, str]) -> None:
    assert (await guarded.get("/prompt", headers=headers)).status == 401


async def test_wrong_token_is_not_outdone_by_a_session(guarded: Client) -> None:
    assert (await log_in(guarded, "alice")).status == 303
    assert (await guarded.get("/prompt")).status == 200
    assert (await guarded.get("/prompt", headers={"X-API-Key": "csl_wrong"})).status == 401


async def test_session_ends_with_the_token_that_opened_it(guarded: Client, source: FixedAccounts) -> None:
    await log_in(guarded, "alice")
    source.change(replace(ALICE, tokens=(token_digest(new_token()),)), BOB)
    assert (await guarded.get("/prompt")).status == 401


async def test_logged_in_person_is_told_as_whom_and_can_leave(guarded: Client) -> None:
    await log_in(guarded, "alice")
    assert "alice" in await (await guarded.get("/login")).text()
    await guarded.post("/logout", allow_redirects=False)
    assert (await guarded.get("/prompt")).status == 401
    assert "alice" not in await (await guarded.get("/login")).text()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "same-site"}, 401),
        ({"Origin": "http://other.example:80"}, 401),
        ({"Origin": "null"}, 401),
        ({"Origin": "http://["}, 401),
        ({"Origin": "http://server.example:99999"}, 401),
    ],
)
async def test_other_sites_cannot_use_a_session_to_change_anything(
    start_client: StartClient, source: FixedAccounts, headers: dict[str, str], status: int
) -> None:
    client = await start_client(book=AccountBook(source))
    await log_in(client, "alice")
    host = {"Host": "server.example"}
    assert (await client.post("/interrupt", headers=host | headers)).status == status
    assert (await client.get("/prompt", headers=host | headers)).status == 200


async def test_login_form_of_another_site_is_refused(guarded: Client) -> None:
    for origin in ("http://evil.example", "http://["):
        headers = {"Host": "server.example", "Origin": origin}
        answer = await log_in(guarded, "alice", headers=headers)
        assert (answer.status, COOKIE in answer.cookies) == (403, False)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-www-form-urlencoded; charset=none", b"token=x"),
        ("multipart/form-data", b"token=x"),
        ("multipart/form-data; boundary=a", b"token=x"),
        ("multipart/form-data; boundary=a", b"--a\r\n\r\nx\r\n--a--"),
        (
            "multipart/form-data; boundary=a",
            b'--a\r\nContent-Disposition: form-data; name="token"\r\n'
            b"Content-Transfer-Encoding: x\r\n\r\nx\r\n--a--",
        ),
    ],
)
async def test_broken_login_form_is_the_fault_of_its_sender(guarded: Client, kind: str, body: bytes) -> None:
    answer = await guarded.post("/login", data=body, headers={"Content-Type": kind})
    assert answer.status == 400


async def test_stranger_behind_a_proxy_on_this_machine_does_not_keep_others_out(guarded: Client) -> None:
    for _ in range(MAX_FAILURES):
        await guarded.post(
            "/login", data={"token": "wrong"}, headers={"X-Forwarded-For": "198.51.100.1, 203.0.113.6"}
        )
    for forwarded, status in (("203.0.113.6", 429), ("203.0.113.6, 198.51.100.9", 303), ("no address", 303)):
        answer = await log_in(guarded, "alice", headers={"X-Forwarded-For": forwarded})
        assert answer.status == status


async def test_forms_that_are_sent_slowly_do_not_get_around_the_pause(guarded: Client) -> None:
    """All arrive before any of them has failed, and end afterwards."""
    go = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"token="
        await go.wait()
        yield b"wrong"

    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    tries = [asyncio.create_task(guarded.post("/login", data=slowly(), headers=kind)) for _ in range(15)]
    await asyncio.sleep(0.2)
    go.set()
    statuses = [answer.status for answer in await asyncio.gather(*tries)]
    assert (statuses.count(401), statuses.count(429)) == (MAX_FAILURES, 15 - MAX_FAILURES)


async def test_configured_origin_may_use_sessions(start_client: StartClient, source: FixedAccounts) -> None:
    client = await start_client(book=AccountBook(source), cors_origin="https://app.example")
    await log_in(client, "alice")
    for origin, status in (("https://app.example", 200), ("https://other.example", 401)):
        assert (await client.post("/interrupt", headers={"Origin": origin})).status == status


async def test_cookie_travels_encrypted_where_the_page_does(guarded: Client) -> None:
    plain = await log_in(guarded, "alice")
    proxied = await log_in(guarded, "alice", headers={"X-Forwarded-Proto": "https"})
    assert "Secure" not in plain.headers["Set-Cookie"]
    assert "Secure" in proxied.headers["Set-Cookie"]


async def test_caches_keep_tenants_apart(guarded: Client) -> None:
    answer = await guarded.get("/prompt", headers=bearer("alice"))
    assert answer.headers["Cache-Control"] == "private"
    assert answer.headers["Vary"] == "Authorization, X-API-Key, Cookie"


async def test_tenant_that_is_no_operator_cannot_unload_what_others_use(
    guarded: Client, engine: FakeEngine
) -> None:
    body = {"unload_models": True, "free_memory": True}
    assert (await guarded.post("/free", json=body, headers=bearer("alice"))).status == 200
    assert (engine.freed, engine.forgotten) == ([], [ALICE.tenant])
    await guarded.post("/free", json=body, headers=bearer("ops"))
    assert engine.freed == [(True, True)]


async def test_limit_of_a_request_is_the_smaller_one(start_client: StartClient, source: FixedAccounts) -> None:
    source.change(replace(ALICE, limits=Limits(max_request_bytes=10)), BOB)
    client = await start_client(book=AccountBook(source), max_upload_bytes=50)
    for name, size, status in (("alice", 20, 413), ("alice", 5, 200), ("bob", 20, 200), ("bob", 60, 413)):
        answer = await client.post("/userdata/a.txt", data=b"x" * size, headers=bearer(name))
        assert answer.status == status


async def test_login_form_of_any_size_is_not_read(guarded: Client) -> None:
    answer = await guarded.post("/login", data={"token": "x" * 20_000})
    assert answer.status == 413


async def test_work_of_an_account_that_ended_is_stopped(
    start_client: StartClient, engine: FakeEngine, source: FixedAccounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comfyserverless.server.ending.watch.EVERY_S", 0.01)
    guarded = await start_client(book=AccountBook(source))
    await guarded.post("/prompt", json={"prompt": {}}, headers=bearer("alice"))
    await guarded.post("/prompt", json={"prompt": {}}, headers=bearer("bob"))
    async with guarded.ws_connect("/ws", headers=bearer("alice")) as socket:
        await socket.receive_json()
        source.change(BOB)
        message = await socket.receive(timeout=60)
        assert message.type.name in ("CLOSED", "CLOSE", "ERROR")
    assert set(engine.stopped) == {ALICE.tenant}
    assert [record.tenant for record in engine.in_state(RunStatus.PENDING, tenant=BOB.tenant)] == [BOB.tenant]


async def test_console_lines_go_to_operators_and_to_whom_they_are_about(guarded: Client) -> None:
    assert guarded.app is not None
    hub = guarded.app[HUB]
    heard: dict[str, list[str]] = {}
    sockets = {}
    for name in ("alice", "bob", "ops"):
        sockets[name] = await guarded.ws_connect("/ws?clientId=same", headers=bearer(name))
        await sockets[name].receive_json()
        body = {"clientId": "same", "enabled": True}
        await guarded.patch("/internal/logs/subscribe", json=body, headers=bearer(name))
    hub.send_log({"entries": ["of the server"]})
    hub.send_log({"entries": ["of alice"]}, ALICE.tenant)
    for name, socket in sockets.items():
        hub.on_notice(QueueChanged(TenantId(name), 7))
        heard[name] = []
        while (message := await socket.receive_json(timeout=60))["type"] == "logs":
            heard[name] += message["data"]["entries"]
        await socket.close()
    assert heard == {"alice": ["of alice"], "bob": [], "ops": ["of the server", "of alice"]}
