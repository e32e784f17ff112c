"""Submit prompts, and look after the queue, the running one and history."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from comfyserverless.control.views import SubmitRequest, priority_of
from comfyserverless.control.webhooks.target import WebhookError
from comfyserverless.core.ids import PromptId
from comfyserverless.nodes.registry import BUILTIN
from comfyserverless.server.access import identity_of
from comfyserverless.server.bodies import BodyError, encode_json, json_response, read_object
from comfyserverless.server.border import prompt_error
from comfyserverless.server.content.replacements import class_of, replaced
from comfyserverless.server.hosting.packs import PACKS
from comfyserverless.server.keys import ENGINE, files_of, tenant_of
from comfyserverless.server.numbers import whole_number
from comfyserverless.server.records import history_record, queue_item, shown_number
from comfyserverless.server.routes.library import find_replacements
from comfyserverless.server.webhooks.wiring import FIELD as WEBHOOK_FIELD
from comfyserverless.server.webhooks.wiring import expect, wanted_target

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_HISTORY_PIECE = 500
_SECRETS = ("auth_token_comfy_org", "api_key_comfy_org", WEBHOOK_FIELD)


def is_prompt_id(value: Any) -> bool:
    """Tell whether a value is a canonical UUID: lower case, with hyphens."""
    return isinstance(value, str) and _UUID.fullmatch(value) is not None


def prompt_ids(value: Any) -> list[PromptId]:
    """Read a list of ids of a delete request; other values in it name nothing. Raises BodyError."""
    if not isinstance(value, list):
        raise BodyError("`delete` must be a list of prompt ids")
    return [PromptId(item) for item in value if isinstance(item, str)]


async def submit(request: web.Request) -> web.Response:
    """Validate and enqueue a prompt."""
    body = await read_object(request)
    body = await request.app[PACKS].edited(body, tenant_of(request), files_of(request))
    if "prompt" not in body:
        return prompt_error("no_prompt", "No prompt provided", "No prompt provided")
    prompt_id = body.get("prompt_id")
    if prompt_id is not None and not is_prompt_id(prompt_id):
        return prompt_error(
            "invalid_prompt_id", "prompt_id must be a canonical UUID", "lower case, with hyphens"
        )
    try:
        target = wanted_target(request, body.get("extra_data"))
    except WebhookError as exc:
        return prompt_error("invalid_webhook", "The webhook cannot be called", str(exc))
    body["prompt"] = await _with_known_classes(request, body["prompt"])
    result = await request.app[ENGINE].submit(_submit_request(request, body, prompt_id))
    if result.error is not None:
        answer = json_response({"error": result.error, "node_errors": result.node_errors}, 400)
        if result.retry_after_s is not None:
            answer.set_status(429)
            answer.headers["Retry-After"] = str(result.retry_after_s)
        return answer
    if target is not None and result.prompt_id is not None:
        await expect(request, result.prompt_id, target)
    number = shown_number(result.number)
    return json_response({"prompt_id": result.prompt_id, "number": number, "node_errors": result.node_errors})


async def _with_known_classes(request: web.Request, prompt: Any) -> Any:
    """Replace classes that were renamed; looks at the disk and waits for packs only if one is not built in."""
    if not isinstance(prompt, dict) or all(BUILTIN.get(class_of(node)) for node in prompt.values()):
        return prompt
    catalog = await request.app[ENGINE].hosting.host.loaded()
    classes = {} if catalog is None else catalog.classes
    return replaced(
        prompt,
        await find_replacements(request.app),
        lambda name: name in classes or BUILTIN.get(name) is not None,
    )


def _submit_request(request: web.Request, body: Mapping[str, Any], prompt_id: str | None) -> SubmitRequest:
    client_id = _text(body, "client_id")
    extra_data = body.get("extra_data")
    if extra_data is not None and not isinstance(extra_data, dict):
        raise BodyError("`extra_data` must be an object")
    if not isinstance((extra_data or {}).get("extra_pnginfo") or {}, dict):
        raise BodyError("`extra_data.extra_pnginfo` must be an object")
    kept = {key: value for key, value in (extra_data or {}).items() if key not in _SECRETS}
    try:
        priority_of(kept)
    except ValueError as exc:
        raise BodyError(f"`extra_data.priority` must be {exc}") from exc
    if client_id is not None:
        kept["client_id"] = client_id
    return SubmitRequest(
        prompt=body["prompt"],
        tenant=tenant_of(request),
        client_id=client_id,
        prompt_id=None if prompt_id is None else PromptId(prompt_id),
        number=_number(body),
        front=bool(body.get("front", False)),
        extra_data=kept,
        targets=_targets(body),
    )


def _text(body: Mapping[str, Any], key: str) -> str | None:
    value = body.get(key)
    if value is not None and not isinstance(value, str):
        raise BodyError(f"`{key}` must be a text")
    return value


def _number(body: Mapping[str, Any]) -> float | None:
    if body.get("number") is None:
        return None
    try:
        number = float(body["number"])
    except (TypeError, ValueError, OverflowError) as exc:
        raise BodyError("`number` must be a number") from exc
    if not math.isfinite(number):
        raise BodyError("`number` must be finite")
    return number


def _targets(body: Mapping[str, Any]) -> list[str] | None:
    targets = body.get("partial_execution_targets")
    if targets is None:
        return None
    if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
        raise BodyError("`partial_execution_targets` must be a list of node ids")
    return targets


async def show_remaining(request: web.Request) -> web.Response:
    """Tell how many prompts are pending or running."""
    remaining = request.app[ENGINE].remaining(tenant_of(request))
    return json_response({"exec_info": {"queue_remaining": remaining}})


async def show_queue(request: web.Request) -> web.Response:
    """List what runs and what waits."""
    engine, tenant = request.app[ENGINE], tenant_of(request)
    return json_response(
        {
            "queue_running": [queue_item(record) for record in engine.running(tenant)],
            "queue_pending": [queue_item(record) for record in engine.pending(tenant)],
        }
    )


async def edit_queue(request: web.Request) -> web.Response:
    """Drop pending prompts: all of them, or some."""
    body = await read_object(request)
    engine, tenant = request.app[ENGINE], tenant_of(request)
    if body.get("clear"):
        engine.clear_pending(tenant)
    if body.get("delete") is not None:
        engine.delete_pending(prompt_ids(body["delete"]), tenant)
    await engine.settled()
    return web.Response()


async def interrupt(request: web.Request) -> web.Response:
    """Stop what runs, or one prompt if it runs; 200 in any case."""
    body = await read_object(request, may_be_empty=True)
    prompt_id = body.get("prompt_id") or None
    if prompt_id is None or isinstance(prompt_id, str):
        engine = request.app[ENGINE]
        engine.interrupt(None if prompt_id is None else PromptId(prompt_id), tenant_of(request))
        await engine.settled()
    return web.Response()


async def free(request: web.Request) -> web.Response:
    """Drop weights, and with `free_memory` cached results, once idle.

    Weights belong to all tenants: one that is no operator can only drop its own results.
    """
    body = await read_object(request, may_be_empty=True)
    wants_memory = bool(body.get("free_memory"))
    wants_models = bool(body.get("unload_models")) or wants_memory
    if identity_of(request).is_operator:
        if wants_models:
            request.app[ENGINE].free(unload_models=True, free_memory=wants_memory)
    elif wants_memory:
        request.app[ENGINE].forget_results(tenant_of(request))
    return web.Response()


async def show_history(request: web.Request) -> web.StreamResponse:
    """List ended prompts, oldest first: the newest `max_items`, or from `offset` on.

    A long list is sent piece by piece: the server holds one piece of it in memory.
    """
    engine, tenant = request.app[ENGINE], tenant_of(request)
    max_items, offset = _query_int(request, "max_items"), _query_int(request, "offset")
    start, stop = page_of(await engine.history_count(tenant), max_items, offset)
    if stop - start <= _HISTORY_PIECE:
        records = await engine.history(tenant, start=start, count=stop - start) if stop > start else []
        return json_response({record.prompt_id: history_record(record) for record in records})
    answer = web.StreamResponse(headers={"Content-Type": "application/json; charset=utf-8"})
    await answer.prepare(request)
    if request.method == "HEAD":
        return answer  # what is written now would be taken for the next answer
    opening = b"{"
    for first in range(start, stop, _HISTORY_PIECE):
        count = min(_HISTORY_PIECE, stop - first)
        records = await engine.history(tenant, start=first, count=count)
        if records:
            piece = encode_json({record.prompt_id: history_record(record) for record in records})
            await answer.write(opening + piece[1:-1])
            opening = b","
    await answer.write(b"{}" if opening == b"{" else b"}")
    await answer.write_eof()
    return answer


def page_of(length: int, max_items: int | None, offset: int | None) -> tuple[int, int]:
    """Cut a page out of history, as (start, stop); without offset, or a negative one, from the newest end."""
    if max_items is not None and max_items < 0:
        max_items = None
    if offset is None or offset < 0:
        start = 0 if max_items is None else max(0, length - max_items)
    else:
        start = min(offset, length)
    return start, length if max_items is None else min(length, start + max_items)


def _query_int(request: web.Request, name: str) -> int | None:
    text = request.query.get(name)
    if text is None:
        return None
    number = whole_number(text)
    if number is None:
        raise BodyError(f"{name} must be an integer")
    return number


async def show_history_of(request: web.Request) -> web.Response:
    """Show one ended prompt, `{}` if there is none of that id."""
    prompt_id = PromptId(request.match_info["prompt_id"])
    record = await request.app[ENGINE].find(prompt_id, tenant_of(request))
    if record is None or record.ended_ms is None:
        return json_response({})
    return json_response({prompt_id: history_record(record)})


async def edit_history(request: web.Request) -> web.Response:
    """Forget ended prompts: all of them, or some."""
    body = await read_object(request)
    engine, tenant = request.app[ENGINE], tenant_of(request)
    if body.get("clear"):
        engine.clear_history(tenant)
    if body.get("delete") is not None:
        engine.delete_history(prompt_ids(body["delete"]), tenant)
    await engine.settled()
    return web.Response()


ROUTES = (
    web.get("/prompt", show_remaining),
    web.post("/prompt", submit),
    web.get("/queue", show_queue),
    web.post("/queue", edit_queue),
    web.post("/interrupt", interrupt),
    web.post("/free", free),
    web.get("/history", show_history),
    web.post("/history", edit_history),
    web.get("/history/{prompt_id}", show_history_of),
)
