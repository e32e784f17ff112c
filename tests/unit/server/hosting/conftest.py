"""Give tests a server, and a small host of packs behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from comfyserverless.core.hosting import Catalog, RouteInfo
from tests.support.fake_engine import FakeEngine

ServePacks = Callable[..., Awaitable[None]]


@pytest.fixture
async def serve_packs(engine: FakeEngine, tmp_path: Path) -> AsyncIterator[ServePacks]:
    """Return a function that serves routes as those of packs: `await serve_packs(*routes)`."""
    runners: list[web.AppRunner] = []

    async def serve(*routes: web.RouteDef, twinned: bool = True, **more: object) -> None:
        socket = str(tmp_path / "packs.sock")
        app = web.Application()
        for route in routes:
            for path in (route.path, "/api" + route.path) if twinned else (route.path,):
                app.router.add_route(route.method, path, route.handler)
        runners.append(web.AppRunner(app, access_log=None))
        await runners[-1].setup()
        await web.UnixSite(runners[-1], socket).start()
        infos = tuple(RouteInfo(route.method, route.path, twinned) for route in routes)
        engine.hosting.host.catalog = Catalog((), {}, infos, socket, **more)  # type: ignore[arg-type]

    yield serve
    for runner in runners:
        await runner.cleanup()
