"""Requests are counted by few labels, whatever is asked for."""

from __future__ import annotations

from typing import Any

from aiohttp.test_utils import TestClient

from tests.unit.server.test_health import samples

Client = TestClient[Any, Any]


async def test_requests_are_counted_by_the_template_of_their_route(client: Client) -> None:
    for path in ("/history/one", "/history/two", "/no/such/page", "/api/no/such"):
        await client.get(path)
    await client.request("PROPFIND", "/prompt")
    await client.post("/prompt", data=b"{")
    found = await samples(client)
    assert found["http_requests_total", "GET", "/history/{prompt_id}", "200"] == 2
    assert found["http_requests_total", "POST", "/prompt", "400"] == 1
    assert found["http_requests_total", "other", "(none)", "405"] == 1
    assert found["http_request_duration_seconds_count", "/history/{prompt_id}"] == 2
    routes = {labels[2] for labels in found if labels[0] == "http_requests_total"}
    assert not any("/one" in route or "such" in route for route in routes)


async def test_open_websockets_are_counted_and_do_not_count_as_slow_answers(client: Client) -> None:
    async with client.ws_connect("/ws"):
        assert (await samples(client))["websocket_clients",] == 1
    found = await samples(client)
    assert found["websocket_clients",] == 0
    assert found["http_requests_total", "GET", "/ws", "101"] == 1
    assert ("http_request_duration_seconds_count", "/ws") not in found


async def test_refused_requests_are_counted_too(client: Client) -> None:
    await client.get("/prompt", headers={"Sec-Fetch-Site": "cross-site"})
    assert (await samples(client))["http_requests_total", "GET", "/prompt", "403"] == 1
