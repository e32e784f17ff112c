"""Let the handler of a route see the folders, and reach the page, of who has sent the request."""

from __future__ import annotations

import asyncio
import json

from aiohttp import web
from aiohttp.typedefs import Handler

from comfyserverless.core.hosting import SERVED_HEADER
from comfyserverless.host.bridge import CallInfo, bridge
from comfyserverless.host.failing import words_of
from comfyserverless.host.running.current import Call, Running, executing
from comfyserverless.host.running.live import places_of


@web.middleware
async def serve_tenant(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Make the sender's tenant the one that is served while the handler runs."""
    about = json.loads(request.headers.get(SERVED_HEADER, "{}"))
    info = CallInfo(tenant=str(about.get("tenant", "")))
    places = places_of(about.get("places") or {}, bridge().places)
    with executing(Call(Running(info, places, lambda: False), info)):
        return await _answered(request, handler)


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Have a handler answer; one that leaves the program, or ends its own task, fails as others do."""
    try:
        return await handler(request)
    except Exception:
        raise
    except BaseException as exc:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise  # nobody waits for it any more
        raise RuntimeError(f"{type(exc).__name__}: {words_of(exc)}") from exc
