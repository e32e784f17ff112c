"""Tell machines how the server is: alive, ready, and all it measures. These routes are ours, not ComfyUI's.

Whether it is alive and ready anybody may ask, and learns nothing about tenants; measurements name tenants and
are for operators.
"""

from __future__ import annotations

from aiohttp import hdrs, web

from comfyserverless.server.access import identity_of
from comfyserverless.server.bodies import json_response
from comfyserverless.server.border import problem
from comfyserverless.server.keys import ENGINE, HUB, REQUESTS

_RETRY_AFTER_S = "2"


async def show_alive(request: web.Request) -> web.Response:
    """Answer while the event loop runs: whoever does not answer may be started anew."""
    return _fresh(json_response({"status": "alive"}))


async def show_ready(request: web.Request) -> web.Response:
    """Tell whether prompts can be taken and run now: 200, or 503 with the reasons why not."""
    reasons = request.app[ENGINE].obstacles()
    if not reasons:
        return _fresh(json_response({"status": "ready"}))
    answer = json_response({"status": "not ready", "reasons": reasons}, 503)
    answer.headers[hdrs.RETRY_AFTER] = _RETRY_AFTER_S
    return _fresh(answer)


async def show_metrics(request: web.Request) -> web.Response:
    """Show all metrics to operators, in the format that they take (Prometheus' text, or OpenMetrics)."""
    if not identity_of(request).is_operator:
        return problem(request, "forbidden", "Only operators may see the metrics", 403)
    app = request.app
    app[REQUESTS].sockets = app[HUB].count
    body, content_type = await app[ENGINE].metrics.render(request.headers.get(hdrs.ACCEPT, ""))
    return _fresh(web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type}))


def _fresh(answer: web.Response) -> web.Response:
    answer.headers[hdrs.CACHE_CONTROL] = "no-store"
    return answer


ROUTES = (
    web.get("/healthz", show_alive),
    web.get("/readyz", show_ready),
    web.get("/metrics", show_metrics),
)
"""Routes without a twin."""
