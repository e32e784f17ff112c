"""Serve the routes that packs added, on a unix socket: the control process passes requests on to it.

Handlers run in one event loop on a thread of its own, beside nodes. One that blocks it holds up the routes of
packs, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress

from aiohttp import web
from aiohttp.abc import AbstractView

from comfyserverless.core.hosting import RouteInfo
from comfyserverless.host.running.executor import run_for_ever
from comfyserverless.host.web.prompt_server import PromptServer

log = logging.getLogger(__name__)

_START_WITHIN_S = 30.0
_END_WITHIN_S = 1.0
_TWIN = "/api"


class PackServer:
    """The loop of a PromptServer, and the site on it."""

    def __init__(self, server: PromptServer) -> None:
        self._server = server
        self._runner: web.AppRunner | None = None
        self._thread = threading.Thread(target=self._run, name="pack-http", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._server.loop)
        run_for_ever(self._server.loop)

    def open(self, path: str) -> tuple[RouteInfo, ...]:
        """Begin to serve on a socket at `path` all routes there are; returns them. None: nothing is served.

        Raises TimeoutError if a start-up function of a pack does not return, or what it raises.
        """
        routes = add_routes(self._server)
        if routes:
            with suppress(FileNotFoundError):
                os.unlink(path)
            start = asyncio.run_coroutine_threadsafe(self._open(path), self._server.loop)
            start.result(_START_WITHIN_S)
        return routes

    async def _open(self, path: str) -> None:
        self._runner = web.AppRunner(
            self._server.app, access_log=None, handle_signals=False, shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.UnixSite(self._runner, path).start()

    def close(self) -> None:
        """End the site; handlers that run are given up, one that blocks is left to the end of the process."""
        loop = self._server.loop
        if self._runner is not None:
            with suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(self._runner.cleanup(), loop).result(_END_WITHIN_S)
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(_END_WITHIN_S)
        if not self._thread.is_alive():
            loop.close()


def add_routes(server: PromptServer) -> tuple[RouteInfo, ...]:
    """Add the shared table of routes, each with its twin below /api, to the application; returns all routes.

    One whose path is none is told in the log and left out; of two with one path the first answers.
    """
    found = list(_routes_of(server.app.router.resources()))
    for definition in server.routes:
        for twin in _with_twin(definition):
            try:
                twin.register(server.app.router)
            except (RuntimeError, ValueError) as exc:
                log.warning("a route of a pack cannot be added: %s", exc)
                break
        else:
            found.append(_described(definition))
    return tuple(found)


def _with_twin(definition: web.AbstractRouteDef) -> Iterator[web.AbstractRouteDef]:
    yield definition
    if isinstance(definition, web.RouteDef):
        yield web.RouteDef(definition.method, _TWIN + definition.path, definition.handler, definition.kwargs)
    elif isinstance(definition, web.StaticDef):
        yield web.StaticDef(_TWIN + definition.prefix, definition.path, definition.kwargs)


def _described(definition: web.AbstractRouteDef) -> RouteInfo:
    if isinstance(definition, web.StaticDef):
        return RouteInfo("GET", _below(definition.prefix), twinned=True)
    assert isinstance(definition, web.RouteDef)
    return RouteInfo(definition.method, definition.path, True, _origin(definition.handler))


def _routes_of(resources: Iterable[web.AbstractResource]) -> Iterator[RouteInfo]:
    """Describe what packs have added to the application itself; such routes have no twin."""
    for resource in resources:
        if isinstance(resource, web.StaticResource):
            yield RouteInfo("GET", _below(resource.canonical), twinned=False)
            continue
        path = getattr(resource, "_orig_path", resource.canonical)  # the pattern, not only its names
        if isinstance(resource, web.Resource):
            for route in resource:
                yield RouteInfo(route.method, path, False, _origin(route.handler))
        else:
            yield RouteInfo("*", _below(resource.canonical), twinned=False)


def _below(prefix: str) -> str:
    return prefix.rstrip("/") + "/{path:.*}"


def _origin(handler: type[AbstractView] | object) -> str:
    """Return the module that a handler is of."""
    return str(getattr(handler, "__module__", ""))
