"""Routes of packs on their socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from comfyserverless.core.hosting import SERVED_HEADER, Catalog
from comfyserverless.host.web.part import WebPart
from comfyserverless.host.web.prompt_server import PromptServer
from tests.support.pack_modules import module, pack_modules


@pytest.fixture
def part(tmp_path: Path) -> Iterator[WebPart]:
    with pack_modules(tmp_path):
        part = WebPart(str(tmp_path / "packs.sock"))
        yield part
        part.close()


@pytest.fixture
def server(part: WebPart) -> PromptServer:
    instance: PromptServer = module("server").PromptServer.instance
    return instance


async def get(path: Path, url: str, **headers: str) -> tuple[int, str]:
    session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path)))
    async with session, session.get(f"http://packs{url}", headers=headers) as answer:
        return answer.status, await answer.text()


async def test_shared_routes_are_served_with_their_twins_and_own_ones_as_they_are(
    part: WebPart, server: PromptServer, tmp_path: Path
) -> None:
    @server.routes.get("/mine/{name}")
    async def show(request: web.Request) -> web.Response:
        return web.Response(text=request.match_info["name"] + request.path)

    server.app.router.add_get(r"/own/{number:\d+}", show)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("content")
    server.app.router.add_static("/files", tmp_path / "files")
    catalog = part.on_loaded(Catalog((), {}))
    assert catalog.http == str(tmp_path / "packs.sock")
    shown = {(route.method, route.path, route.twinned) for route in catalog.routes}
    assert shown == {
        ("GET", "/mine/{name}", True),
        ("GET", r"/own/{number:\d+}", False),
        ("HEAD", r"/own/{number:\d+}", False),
        ("GET", "/files/{path:.*}", False),
    }
    socket = tmp_path / "packs.sock"
    assert await get(socket, "/mine/x") == (200, "x/mine/x")
    assert await get(socket, "/api/mine/x") == (200, "x/api/mine/x")
    assert (await get(socket, "/api/own/5"))[0] == 404
    assert await get(socket, "/files/a.txt") == (200, "content")


async def test_of_two_routes_with_one_path_the_first_answers_and_what_is_no_path_is_left_out(
    part: WebPart, server: PromptServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for text in ("first", "second"):

        async def show(request: web.Request, text: str = text) -> web.Response:
            return web.Response(text=text)

        server.routes.get("/same")(show)
    server.routes.get("no-path")(show)
    catalog = part.on_loaded(Catalog((), {}))
    assert {route.path for route in catalog.routes} == {"/same"}
    assert "a route of a pack cannot be added" in caplog.text
    assert await get(tmp_path / "packs.sock", "/same") == (200, "first")


async def test_handler_sees_the_folders_of_who_has_sent_the_request(
    part: WebPart, server: PromptServer, tmp_path: Path
) -> None:
    @server.routes.get("/where")
    async def show(request: web.Request) -> web.Response:
        from comfyserverless.host.running.current import current

        call = current()
        assert call is not None
        return web.json_response([call.info.tenant, str(call.running.places.output)])

    part.on_loaded(Catalog((), {}))
    served = json.dumps({"tenant": "zoe", "places": {"output": "/z"}})
    answer = await get(tmp_path / "packs.sock", "/where", **{SERVED_HEADER: served})
    assert json.loads(answer[1]) == ["zoe", "/z"]


def test_nothing_is_served_for_packs_without_routes(part: WebPart, tmp_path: Path) -> None:
    catalog = part.on_loaded(Catalog((), {}))
    assert (catalog.http, catalog.routes, catalog.has_prompt_handlers) == ("", (), False)
    assert not (tmp_path / "packs.sock").exists()


def test_prompt_handlers_are_told_and_asked(part: WebPart, server: PromptServer) -> None:
    server.add_on_prompt_handler(lambda body: {**body, "seen": True})
    assert part.on_loaded(Catalog((), {})).has_prompt_handlers
    assert json.loads(part.on_prompt({"body": '{"a": 1}'})["body"]) == {"a": 1, "seen": True}


def test_start_that_fails_costs_the_routes_only(
    part: WebPart, server: PromptServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def break_down(app: web.Application) -> None:
        raise ValueError("not today")

    async def show(request: web.Request) -> web.Response:
        return web.Response()

    server.routes.get("/x")(show)
    server.app.on_startup.append(break_down)
    assert part.on_loaded(Catalog((), {})).routes == ()
    assert "not today" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [SystemExit(2), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_handler_or_task_that_leaves_the_program_fails_alone(
    part: WebPart, server: PromptServer, tmp_path: Path, error: BaseException
) -> None:
    async def leave() -> None:
        raise error

    @server.routes.get("/leave")
    async def leave_here(request: web.Request) -> web.Response:
        raise error

    @server.routes.get("/leave_beside")
    async def leave_beside(request: web.Request) -> web.Response:
        await asyncio.wait([asyncio.ensure_future(leave())])
        return web.Response(text="still here")

    part.on_loaded(Catalog((), {}))
    socket = tmp_path / "packs.sock"
    async with asyncio.timeout(60):
        assert (await get(socket, "/leave"))[0] == 500
        assert await get(socket, "/leave_beside") == (200, "still here")
