"""Requests for routes of packs, from the page's side."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.core.hosting import SERVED_HEADER, Catalog, RouteInfo
from tests.support.fake_engine import FakeEngine
from tests.support.tenants import FixedAccounts
from tests.unit.server.conftest import StartClient
from tests.unit.server.hosting.conftest import ServePacks
from tests.unit.server.test_access import ALICE, TOKENS

Client = TestClient[Any, Any]


async def echo(request: web.Request) -> web.Response:
    body = await request.read()
    shown = {
        "method": request.method,
        "path": request.raw_path,
        "match": dict(request.match_info),
        "query": list(request.query.items()),
        "headers": {name.lower(): value for name, value in request.headers.items()},
        "body": body.decode("latin-1"),
    }
    answer = web.json_response(shown, status=201, headers={"X-Mine": "yes"})
    answer.set_cookie("theirs", "1")
    answer.set_cookie("comfyserverless_session", "stolen")
    return answer


async def test_a_request_arrives_as_it_was_sent(client: Client, serve_packs: ServePacks) -> None:
    await serve_packs(web.post("/mine/{name}", echo))
    answer = await client.post(
        "/mine/a%2Fb?x=1&x=2&y=%20", data=b"\x00\xffraw", headers={"X-Own": "v", "Content-Type": "x/y"}
    )
    seen = await answer.json()
    assert (answer.status, answer.headers["X-Mine"]) == (201, "yes")
    assert seen["path"] == "/mine/a%2Fb?x=1&x=2&y=%20"
    assert seen["match"] == {"name": "a/b"}
    assert seen["query"] == [["x", "1"], ["x", "2"], ["y", " "]]
    assert seen["body"].encode("latin-1") == b"\x00\xffraw"
    assert (seen["headers"]["x-own"], seen["headers"]["content-type"]) == ("v", "x/y")
    assert json.loads(seen["headers"][SERVED_HEADER.lower()])["tenant"] == "default"


async def test_shared_routes_have_a_twin_and_others_have_none(client: Client, serve_packs: ServePacks) -> None:
    await serve_packs(web.get("/mine", echo))
    assert (await client.get("/api/mine")).status == (await client.get("/mine")).status == 201
    assert (await client.get("/mine/other")).status == 404


async def test_routes_on_the_application_itself_have_no_twin(client: Client, serve_packs: ServePacks) -> None:
    await serve_packs(web.get("/mine", echo), twinned=False)
    assert (await client.get("/mine")).status == 201
    assert (await client.get("/api/mine")).status == 404


async def test_our_own_routes_and_files_cannot_be_replaced(client: Client, serve_packs: ServePacks) -> None:
    paths = ("/object_info", "/queue", "/prompt", "/scripts/app.js", "/extensions")
    await serve_packs(*(web.get(path, echo) for path in paths))
    for path in paths:
        assert (await client.get(path)).status == 200


async def test_other_methods_of_our_paths_may_be_theirs(client: Client, serve_packs: ServePacks) -> None:
    await serve_packs(web.put("/queue", echo))
    assert (await client.put("/queue")).status == 201
    assert (await client.patch("/queue")).status == 405


async def test_body_that_was_compressed_comes_plain_and_answers_stay_as_they_are(
    client: Client, serve_packs: ServePacks
) -> None:
    async def packed(request: web.Request) -> web.Response:
        body = gzip.compress(await request.read())
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    await serve_packs(web.post("/packed", packed))
    sent = {"data": gzip.compress(b"hello"), "headers": {"Content-Encoding": "gzip"}}
    answer = await client.post("/packed", **sent)  # type: ignore[arg-type]
    assert answer.headers["Content-Encoding"] == "gzip"
    assert await answer.read() == b"hello"


async def test_answer_is_passed_on_piece_by_piece(client: Client, serve_packs: ServePacks) -> None:
    go_on = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"one")
        await go_on.wait()
        await answer.write(b"two")
        return answer

    await serve_packs(web.get("/slow", slow))
    async with client.get("/slow") as answer:
        assert await answer.content.readany() == b"one"
        go_on.set()
        assert await answer.content.read() == b"two"


async def test_head_and_empty_answers_have_no_body(client: Client, serve_packs: ServePacks) -> None:
    async def nothing(request: web.Request) -> web.Response:
        return web.Response(status=204)

    await serve_packs(web.get("/nothing", nothing), web.get("/mine", echo))
    assert (await client.get("/nothing")).status == 204
    assert (await client.get("/mine")).status == 201  # the connection is still in order


async def test_websocket_is_passed_on_both_ways_with_protocol_and_close_code(
    client: Client, serve_packs: ServePacks
) -> None:
    async def talk(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=("two",))
        await socket.prepare(request)
        async for message in socket:
            if message.data == "end":
                await socket.close(code=4001)
            elif message.type is aiohttp.WSMsgType.TEXT:
                await socket.send_str(message.data.upper())
            else:
                await socket.send_bytes(message.data[::-1])
        return socket

    await serve_packs(web.get("/talk", talk))
    async with client.ws_connect("/api/talk", protocols=("one", "two")) as socket:
        assert socket.protocol == "two"
        await socket.send_str("hello")
        assert await socket.receive_str() == "HELLO"
        await socket.send_bytes(b"ab")
        assert await socket.receive_bytes() == b"ba"
        await socket.send_str("end")
        assert (await socket.receive()).data == 4001


async def test_a_route_that_is_no_websocket_refuses_one(client: Client, serve_packs: ServePacks) -> None:
    await serve_packs(web.get("/mine", echo))
    with pytest.raises(aiohttp.WSServerHandshakeError, match="502"):
        await client.ws_connect("/mine")


async def test_handler_that_does_not_answer_costs_its_request_alone(
    client: Client, serve_packs: ServePacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = asyncio.Event()

    async def wait(request: web.Request) -> web.Response:
        await is_over.wait()
        return web.Response()

    limits_s, wait_for = iter((0.05,)), asyncio.wait_for
    monkeypatch.setattr(asyncio, "wait_for", lambda asking, limit_s: wait_for(asking, next(limits_s, limit_s)))
    await serve_packs(web.get("/wait", wait), web.get("/mine", echo))
    assert (await client.get("/wait")).status == 504
    assert (await client.get("/mine")).status == 201
    is_over.set()  # the host ends its handlers before itself


async def test_host_that_is_gone_is_a_bad_gateway(client: Client, engine: FakeEngine) -> None:
    routes = (RouteInfo("GET", "/mine", True),)
    engine.hosting.host.catalog = Catalog((), {}, routes, "/nowhere/packs.sock")
    answer = await client.get("/mine")
    assert (answer.status, await answer.json()) == (502, {"error": "The node packs cannot answer"})


async def test_handler_that_dies_in_its_answer_breaks_it_off(client: Client, serve_packs: ServePacks) -> None:
    async def die(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"some")
        assert request.transport is not None
        request.transport.abort()
        return answer

    await serve_packs(web.get("/die", die))
    async with client.get("/die") as answer:
        with pytest.raises(aiohttp.ClientError):
            await answer.read()


async def test_after_a_restart_the_new_routes_are_served(
    client: Client, serve_packs: ServePacks, engine: FakeEngine
) -> None:
    await serve_packs(web.get("/old", echo))
    assert (await client.get("/old")).status == 201
    await serve_packs(web.get("/new", echo))
    assert (await client.get("/old")).status == 404
    assert (await client.get("/new")).status == 201


async def test_body_beyond_the_limit_is_refused(start_client: StartClient, serve_packs: ServePacks) -> None:
    client = await start_client(max_upload_bytes=100)
    await serve_packs(web.post("/mine", echo))

    async def pieces() -> Any:
        for _ in range(10):
            yield b"x" * 50

    assert (await client.post("/mine", data=b"x" * 101)).status == 413
    assert (await client.post("/mine", data=pieces())).status == 413


async def test_routes_of_packs_are_behind_the_login_and_see_no_credentials(
    start_client: StartClient, serve_packs: ServePacks
) -> None:
    client = await start_client(book=AccountBook(FixedAccounts(ALICE)))
    await serve_packs(web.get("/mine", echo))
    assert (await client.get("/mine")).status == 401
    headers = {
        "Authorization": f"Bearer {TOKENS['alice']}",
        "Cookie": "comfyserverless_session=abc; other=1",
        SERVED_HEADER: '{"tenant": "somebody"}',
    }
    answer = await client.get("/mine", headers=headers)
    seen = (await answer.json())["headers"]
    assert "authorization" not in seen
    assert seen["cookie"] == "other=1"
    served = json.loads(seen[SERVED_HEADER.lower()])
    assert served["tenant"] == ALICE.tenant
    assert served["places"]["output"].endswith(f"/{ALICE.tenant}")
    assert [cookie.split("=")[0] for cookie in answer.headers.getall("Set-Cookie")] == ["theirs"]


async def test_another_sites_page_cannot_open_a_websocket_with_our_session(
    start_client: StartClient, serve_packs: ServePacks
) -> None:
    client = await start_client(book=AccountBook(FixedAccounts(ALICE)))
    await serve_packs(web.get("/mine", echo))
    await client.post("/login", data={"token": TOKENS["alice"]})
    foreign = {"Sec-Fetch-Site": "same-site"}
    with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
        await client.ws_connect("/mine", headers=foreign)
