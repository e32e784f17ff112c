"""Let the handler of a route see the folders, and reach the page, of who has sent the request."""

from __future__ import annotations

import json

from aiohttp import web
from aiohttp.typedefs import Handler

from comfyserverless.core.hosting import SERVED_HEADER
from comfyserverless.host.bridge import CallInfo, bridge
from comfyserverless.host.running.current import Call, Running, executing
from comfyserverless.host.running.live import places_of


@web.middleware
async def serve_tenant(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Make the sender's tenant the one that is served while the handler runs."""
    about = json.loads(request.headers.get(SERVED_HEADER, "{}"))
    info = CallInfo(tenant=str(about.get("tenant", "")))
    places = places_of(about.get("places") or {}, bridge().places)
    with executing(Call(Running(info, places, lambda: False), info)):
        return await handler(request)
