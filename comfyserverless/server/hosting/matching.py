"""Tell which requests are for routes that packs have added."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import NoReturn

from aiohttp import web

from comfyserverless.core.hosting import RouteInfo

_log = logging.getLogger(__name__)
_TWIN = "/api"


class PackRoutes:
    """The routes of one catalog."""

    def __init__(self, routes: Iterable[RouteInfo]) -> None:
        self._dispatcher = web.UrlDispatcher()
        for method, path in dict.fromkeys(pair for route in routes for pair in _forms(route)):
            try:
                self._dispatcher.add_route(method, path, _never)
            except (ValueError, RuntimeError) as exc:  # what holds it up in the host was told there
                _log.debug("the route %s %s of a pack is not served: %s", method, path, exc)

    async def has(self, request: web.Request) -> bool:
        """Tell whether a request is for one of them."""
        return (await self._dispatcher.resolve(request)).http_exception is None


def _forms(route: RouteInfo) -> Iterator[tuple[str, str]]:
    methods = ("GET", "HEAD") if route.method == "GET" else (route.method,)
    for path in (route.path, _TWIN + route.path) if route.twinned else (route.path,):
        for method in methods:
            yield method, path


async def _never(request: web.Request) -> NoReturn:
    raise AssertionError("a route of a pack is served in the node host")
