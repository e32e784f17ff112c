"""Serve the dashboard: its page, and what it shows. These routes are ours, not ComfyUI's.

The page asks again every second or so with the cursor of the last answer, and gets what is new since then:
what nobody asks for is never put together, a client that is away misses nothing, and every answer is checked
anew for what its sender may see. Operators see all tenants; others see their own share.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from comfyserverless.demo.places import web_folder
from comfyserverless.server.bodies import json_response
from comfyserverless.server.disk import is_file, serve_file
from comfyserverless.server.keys import ENGINE
from comfyserverless.server.overview.document import overview_document

_PAGE = web_folder() / "dashboard" / "index.html"
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
        " form-action 'none'; frame-ancestors 'self'; base-uri 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


async def show_dashboard(request: web.Request) -> web.StreamResponse:
    """Serve the dashboard's own page."""
    if not is_file(str(_PAGE)):
        return web.Response(status=404)
    response = serve_file(str(_PAGE))
    response.headers.update(_HEADERS)
    return response


async def show_overview(request: web.Request) -> web.Response:
    """Show how the server is now and what has happened since a cursor (`?since=`), or in the last minutes."""
    return json_response(overview_document(request, request.query.get("since", "")))


def set_up(app: web.Application) -> None:
    """Have the last minutes remembered while the server runs."""
    app.cleanup_ctx.append(_watch)


async def _watch(app: web.Application) -> AsyncIterator[None]:
    task = asyncio.create_task(app[ENGINE].overview.watch(), name="overview-watch")
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


ROUTES = (web.get("/comfyserverless/overview", show_overview),)
"""Routes with an /api twin."""

PAGE_ROUTES = (web.get("/dashboard", show_dashboard),)
