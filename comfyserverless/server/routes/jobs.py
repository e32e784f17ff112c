"""Show prompts as jobs: the page's queue and history panels. These routes exist only below /api."""

from __future__ import annotations

from typing import TypeVar

from aiohttp import web

from comfyserverless.control.records.base import RecordQuery, SortKey
from comfyserverless.core.ids import PromptId
from comfyserverless.server.bodies import BodyError, error_response, json_response, read_object
from comfyserverless.server.keys import ENGINE, tenant_of
from comfyserverless.server.numbers import whole_number
from comfyserverless.server.records import JOB_STATUSES, job_detail, job_summary, run_statuses
from comfyserverless.server.routes.prompts import is_prompt_id

_T = TypeVar("_T")

_SORT_KEYS = {"created_at": SortKey.CREATED, "execution_duration": SortKey.DURATION}


async def list_jobs(request: web.Request) -> web.Response:
    """List jobs by status, newest first unless asked otherwise."""
    query = request.query
    statuses = _statuses(query.get("status"))
    sort = _choice(query.get("sort_by", "created_at"), "sort_by", _SORT_KEYS)
    is_descending = _choice(query.get("sort_order", "desc"), "sort_order", {"asc": False, "desc": True})
    limit, offset = _limit(query.get("limit")), max(0, _int(query.get("offset", "0"), "offset"))
    wanted = RecordQuery(
        tenant_of(request), run_statuses(statuses), query.get("workflow_id"), sort, is_descending
    )
    records, total = await request.app[ENGINE].select(wanted, offset, limit)
    end = total if limit is None else offset + limit
    pagination = {"offset": offset, "limit": limit, "total": total, "has_more": end < total}
    return json_response({"jobs": [job_summary(record) for record in records], "pagination": pagination})


def _statuses(text: str | None) -> frozenset[str]:
    """Read the comma list of statuses. Raises BodyError naming the unknown ones."""
    if not text:
        return frozenset(JOB_STATUSES)
    statuses = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    unknown = sorted(statuses.difference(JOB_STATUSES))
    if unknown:
        raise BodyError(f"Unknown status {', '.join(unknown)}; known: {', '.join(JOB_STATUSES)}")
    return statuses


def _choice(value: str, name: str, choices: dict[str, _T]) -> _T:
    if value not in choices:
        raise BodyError(f"{name} must be one of {', '.join(choices)}")
    return choices[value]


def _limit(text: str | None) -> int | None:
    if text is None:
        return None
    limit = _int(text, "limit")
    if limit <= 0:
        raise BodyError("limit must be a positive integer")
    return limit


def _int(text: str, name: str) -> int:
    number = whole_number(text)
    if number is None:
        raise BodyError(f"{name} must be an integer")
    return number


async def show_job(request: web.Request) -> web.Response:
    """Show one job with its outputs and its workflow."""
    record = await request.app[ENGINE].find(PromptId(request.match_info["job_id"]), tenant_of(request))
    if record is None:
        return error_response("Job not found", 404)
    return json_response(job_detail(record))


async def cancel_job(request: web.Request) -> web.Response:
    """Stop or drop one job; false if it was neither running nor pending."""
    job_id = PromptId(request.match_info["job_id"])
    engine = request.app[ENGINE]
    was_cancelled = engine.cancel(job_id, tenant_of(request))
    await engine.settled()
    return json_response({"cancelled": was_cancelled})


async def cancel_jobs(request: web.Request) -> web.Response:
    """Stop or drop several jobs; true if any of them was running or pending."""
    job_ids = (await read_object(request)).get("job_ids")
    if not isinstance(job_ids, list):
        return error_response("job_ids must be a list of job ids", 400)
    invalid = [job_id for job_id in job_ids if not is_prompt_id(job_id)]
    if invalid:
        return json_response({"error": "Some job ids are not UUIDs", "invalid_ids": invalid}, 400)
    engine, tenant = request.app[ENGINE], tenant_of(request)
    cancelled = [engine.cancel(PromptId(job_id), tenant) for job_id in job_ids]
    await engine.settled()
    return json_response({"cancelled": any(cancelled)})


ROUTES = (
    web.get("/api/jobs", list_jobs),
    web.get("/api/jobs/{job_id}", show_job),
    web.post("/api/jobs/cancel", cancel_jobs),
    web.post("/api/jobs/{job_id}/cancel", cancel_job),
)
