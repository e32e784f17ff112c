"""Put together what the dashboard shows: all of it for operators, for others what is their own.

Every list is bounded. Times are Unix seconds, durations seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from itertools import islice
from typing import Any

from aiohttp import web

from comfyserverless.control.overview.overview import SAMPLE_S, Recent, Staying
from comfyserverless.control.overview.shares import Sample
from comfyserverless.control.overview.timeline import Stretch
from comfyserverless.control.views import RunRecord
from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.server.access import identity_of
from comfyserverless.server.keys import ENGINE, TENANTS
from comfyserverless.server.routes.system import shown_workers

TENANTS_SHOWN = 200
PROMPTS_SHOWN = 200
PROMPTS_SHOWN_PER_TENANT = 20


def overview_document(request: web.Request, since: str) -> dict[str, Any]:
    """Return the body of `/comfyserverless/overview`. since: the cursor of an earlier one, or empty."""
    identity = identity_of(request)
    only = None if identity.is_operator else identity.tenant
    engine = request.app[ENGINE]
    recent = engine.overview.since(since)
    tenants, hidden = _tenants_of(request, only)
    return {
        "tenant": identity.tenant,
        "is_operator": identity.is_operator,
        "tenants": [_tenant(request, tenant) for tenant in tenants],
        "tenants_hidden": hidden,
        "queue": _queue(request, tenants),
        "workers": shown_workers(request),
        "recovery": asdict(engine.recovery()),
        **recent_fields(recent, only),
    }


def _tenants_of(request: web.Request, only: TenantId | None) -> tuple[list[TenantId], int]:
    """Choose the tenants to show, those with something to do first, and count the others."""
    if only is not None:
        return [only], 0
    engine = request.app[ENGINE]
    names = dict.fromkeys(engine.busy_tenants()) | dict.fromkeys(request.app[TENANTS].names())
    chosen = list(islice(names, TENANTS_SHOWN))
    return chosen, len(names) - len(chosen)


def _tenant(request: web.Request, tenant: TenantId) -> dict[str, Any]:
    engine = request.app[ENGINE]
    return {
        **asdict(engine.usage(tenant)),
        "v_time_s": engine.overview.v_time_s(tenant),
        "ahead_s": engine.overview.ahead_s(tenant),
        "limits": asdict(request.app[TENANTS].limits(tenant)),
    }


def _queue(request: web.Request, tenants: Iterable[TenantId]) -> list[dict[str, Any]]:
    """Return the first prompts of each tenant, running ones first; the counts are with the tenants."""
    engine = request.app[ENGINE]
    rows: list[dict[str, Any]] = []
    for tenant in tenants:
        running = engine.running(tenant)[:PROMPTS_SHOWN_PER_TENANT]
        pending = engine.pending(tenant, PROMPTS_SHOWN_PER_TENANT - len(running))
        rows += [_prompt(record) for record in (*running, *pending)]
        if len(rows) >= PROMPTS_SHOWN:
            break
    return rows[:PROMPTS_SHOWN]


def _prompt(record: RunRecord) -> dict[str, Any]:
    return {
        "prompt_id": record.prompt_id,
        "tenant": record.tenant,
        "status": record.status.value,
        "created_s": record.created_ms / 1000,
        "started_s": None if record.started_ms is None else record.started_ms / 1000,
        "node": record.current_node,
    }


def recent_fields(recent: Recent, only: TenantId | None) -> dict[str, Any]:
    """Return what is new. only: the tenant whose part is shown, None for all."""
    unix_s = recent.unix_s
    return {
        "cursor": recent.cursor,
        "is_full": recent.is_full,
        "now_s": _rounded(recent.now_s + unix_s),
        "sample_s": SAMPLE_S,
        "samples": [_sample(sample, unix_s, only) for sample in recent.samples],
        "stretches": [_stretch(each, unix_s) for each in recent.stretches if only in (None, each.key.tenant)],
        "running": [_staying(each, unix_s) for each in recent.staying if only in (None, each.tenant)],
    }


def _sample(sample: Sample, unix_s: float, only: TenantId | None) -> dict[str, Any]:
    shares = [each for each in sample.shares if only in (None, each.tenant)]
    return {
        "at_s": _rounded(sample.at_s + unix_s),
        "lanes": sample.lanes,
        "others": 0.0 if only is not None else round(sample.others_ratio, 4),
        "shares": [[each.tenant, round(each.held_ratio, 4), _rounded(each.ahead_s)] for each in shares],
    }


def _stretch(stretch: Stretch, unix_s: float) -> dict[str, Any]:
    key = stretch.key
    return {
        "id": stretch.number,
        "worker": key.worker,
        "lane": key.lane,
        "tenant": key.tenant,
        "prompt_id": prompt_of(key.run),
        "node": key.node,
        "function": key.function,
        "outcome": key.outcome,
        "began_s": _rounded(stretch.began_s + unix_s),
        "ended_s": _rounded(stretch.ended_s + unix_s),
        "calls": stretch.calls,
        "held_s": _rounded(stretch.held_s),
        "load_s": _rounded(stretch.load_s),
        "charged_s": _rounded(stretch.charged_s),
    }


def _staying(staying: Staying, unix_s: float) -> dict[str, Any]:
    return {
        "worker": staying.worker,
        "lane": staying.lane,
        "tenant": staying.tenant,
        "prompt_id": prompt_of(staying.run),
        "node": staying.node,
        "function": staying.function,
        "began_s": _rounded(staying.began_s + unix_s),
    }


def prompt_of(run: PromptId) -> str:
    """Return the prompt's id of a run, which is `prompt#serial`."""
    return run.partition("#")[0]


def _rounded(time_s: float) -> float:
    """Round to what a picture can show, so that numbers are short."""
    return round(time_s, 3)
