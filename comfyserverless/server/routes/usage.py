"""Tell tenants what they take up and what they have used; operators see all tenants.

These routes are ours, not ComfyUI's.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from aiohttp import web

from comfyserverless.control.records.usage.query import UsageQuery, UsageSpan
from comfyserverless.control.views import NodesCached, RunRecord
from comfyserverless.core.ids import NodeId, PromptId, TenantId
from comfyserverless.server.access import identity_of
from comfyserverless.server.bodies import error_response, json_response
from comfyserverless.server.keys import ENGINE, TENANTS, tenant_of
from comfyserverless.server.records import job_status
from comfyserverless.server.usage import showing
from comfyserverless.server.usage.asking import Asked, NotAllowedError, read_question, tenant_asked, whole

_ROWS_AT_ONCE = 5_000
_MOST_STAYS = 2_000
_DEFAULT_STAYS = 100
_ALL_ROWS = 1_000_000_000


def _shown(request: web.Request, tenant: TenantId) -> dict[str, Any]:
    usage = asdict(request.app[ENGINE].usage(tenant))
    return {**usage, "limits": asdict(request.app[TENANTS].limits(tenant))}


async def show_tenants(request: web.Request) -> web.Response:
    """Show queue, limits and seconds of service so far (`service_s`, by lane), and today."""
    identity = identity_of(request)
    tenants = request.app[TENANTS].names() if identity.is_operator else [identity.tenant]
    return json_response({"tenants": [_shown(request, tenant) for tenant in tenants]})


async def show_usage(request: web.Request) -> web.StreamResponse:
    """Add usage up by day, function, prompt, node ..., as JSON or as a table (`format=csv`)."""
    try:
        asked = read_question(request.query, request.headers.get("Accept", ""), identity_of(request))
    except NotAllowedError:
        return _refuse()
    if asked.is_csv:
        return await _send_table(request, asked)
    page = await request.app[ENGINE].book.page(asked.query, asked.span())
    return json_response(showing.usage_document(asked, page))


def _refuse() -> web.Response:
    return error_response("Only operators may ask for the usage of other tenants", 403)


async def _send_table(request: web.Request, asked: Asked) -> web.StreamResponse:
    """Send a table piece by piece: the server holds one piece of it in memory."""
    book, query = request.app[ENGINE].book, asked.query
    left = _ALL_ROWS if asked.count is None else asked.count
    page = await book.page(query, UsageSpan(asked.start, min(left, _ROWS_AT_ONCE)))
    answer = web.StreamResponse(headers={"Content-Disposition": 'attachment; filename="usage.csv"'})
    answer.content_type, answer.charset = "text/csv", "utf-8"
    answer.headers["X-Content-Type-Options"] = "nosniff"
    await answer.prepare(request)
    if request.method == "HEAD":
        return answer  # what is written now would be taken for the next answer
    await answer.write(showing.table_head(query).encode())
    while page.rows:
        await answer.write(showing.table_rows(query, page.rows).encode("utf-8", "replace"))
        left -= len(page.rows)
        if len(page.rows) < _ROWS_AT_ONCE or not left:
            break
        page = await book.page(query, UsageSpan(0, min(left, _ROWS_AT_ONCE), page.rows[-1].key))
    await answer.write_eof()
    return answer


async def show_costs(request: web.Request) -> web.Response:
    """Show what each node of one prompt has cost so far; 404 if the tenant has no such prompt."""
    engine, tenant = request.app[ENGINE], tenant_of(request)
    prompt_id = PromptId(request.match_info["prompt_id"])
    record = await engine.find(prompt_id, tenant)
    if record is None:
        return error_response("Prompt not found", 404)
    query = UsageQuery(tenant, showing.COST_GROUPS, prompt_id=prompt_id)
    page = await engine.book.page(query, UsageSpan(0, _ALL_ROWS))
    return json_response(showing.prompt_costs(prompt_id, job_status(record), page.rows, _cached(record)))


def _cached(record: RunRecord) -> set[NodeId]:
    return {node for event in record.messages if isinstance(event, NodesCached) for node in event.nodes}


async def show_stays(request: web.Request) -> web.Response:
    """Show the last stays of invocations in lanes one by one, newest first; the server remembers a few."""
    try:
        tenant = tenant_asked(request.query, identity_of(request))
    except NotAllowedError:
        return _refuse()
    prompt_id = request.query.get("prompt_id")
    count = whole(request.query, "limit", 1, _MOST_STAYS) or _DEFAULT_STAYS
    stays = request.app[ENGINE].book.recent(tenant, None if prompt_id is None else PromptId(prompt_id), count)
    return json_response({"invocations": [showing.stay_item(stay) for stay in stays]})


ROUTES = (
    web.get("/comfyserverless/tenants", show_tenants),
    web.get("/usage", show_usage),
    web.get("/usage/prompts/{prompt_id}", show_costs),
    web.get("/usage/invocations", show_stays),
)
