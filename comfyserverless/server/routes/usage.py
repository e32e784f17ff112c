"""Tell tenants what they take up; operators see all tenants. These routes are ours, not ComfyUI's."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from aiohttp import web

from comfyserverless.core.ids import TenantId
from comfyserverless.server.access import identity_of
from comfyserverless.server.bodies import json_response
from comfyserverless.server.keys import ENGINE, TENANTS


def _shown(request: web.Request, tenant: TenantId) -> dict[str, Any]:
    usage = asdict(request.app[ENGINE].usage(tenant))
    return {**usage, "limits": asdict(request.app[TENANTS].limits(tenant))}


async def show_tenants(request: web.Request) -> web.Response:
    """Show queue, limits and seconds of service so far (`service_s`, by lane)."""
    identity = identity_of(request)
    tenants = request.app[TENANTS].names() if identity.is_operator else [identity.tenant]
    return json_response({"tenants": [_shown(request, tenant) for tenant in tenants]})


ROUTES = (web.get("/comfyserverless/tenants", show_tenants),)
