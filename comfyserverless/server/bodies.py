"""Read request bodies and write JSON answers; the declared content type of a body is ignored.

The page posts settings as text/plain, scripts post with none. Limits hold here once: malformed, non-finite
or absurdly nested JSON raises BodyError, which the error border answers with 400.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec
from aiohttp import web
from aiohttp.http import HttpProcessingError

from comfyserverless.control.records.packed import to_json
from comfyserverless.core.errors import PromptError
from comfyserverless.graph.jsonsafe import json_kind

MAX_DEPTH = 128
"""Nesting that everything behind the server can walk recursively; real graphs stay below 20."""

_REQUIRED = object()


class BodyError(PromptError):
    """The body is not the JSON that the route takes."""


def parse_json(body: bytes | str) -> Any:
    """Parse JSON text; lone surrogates become `?`. Raises BodyError if it is malformed or nested too deep."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeEncodeError):
        value = _parse_leniently(body)
    except RecursionError as exc:
        raise BodyError(f"JSON is nested deeper than {MAX_DEPTH} levels") from exc
    if _is_too_deep(value):
        raise BodyError(f"JSON is nested deeper than {MAX_DEPTH} levels")
    return value


def _parse_leniently(body: bytes | str) -> Any:
    """Accept what browsers may still send: a byte order mark and lone surrogates (escaped halves of emoji)."""
    try:
        text = body.decode("utf-8-sig") if isinstance(body, bytes) else body
        value = json.loads(text, parse_constant=_reject_constant)
        return json.loads(json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace"))
    except ValueError as exc:
        raise BodyError(f"The body is not valid JSON: {exc}") from exc
    except RecursionError as exc:
        raise BodyError(f"JSON is nested deeper than {MAX_DEPTH} levels") from exc


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _is_too_deep(value: Any) -> bool:
    """Walk level by level, so that the check itself cannot overflow the stack."""
    level = [value]
    for _ in range(MAX_DEPTH):
        children: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                children.extend(item.values())
            elif isinstance(item, list):
                children.extend(item)
        level = [child for child in children if isinstance(child, (dict, list))]
        if not level:
            return False
    return True


async def read_json(request: web.Request, *, empty: Any = _REQUIRED) -> Any:
    """Return the parsed body, or `empty` if there is none. Raises BodyError."""
    body = await request.read()
    if not body.strip() and empty is not _REQUIRED:
        return empty
    return parse_json(body)


async def read_object(request: web.Request, *, may_be_empty: bool = False) -> dict[str, Any]:
    """Return a body that must be a JSON object. Raises BodyError."""
    body = await read_json(request, empty={} if may_be_empty else _REQUIRED)
    if not isinstance(body, dict):
        raise BodyError(f"Expected a JSON object, got {json_kind(body)}")
    return body


async def read_form(request: web.Request) -> Mapping[str, Any]:
    """Return the fields of a form, of either kind. Raises BodyError if it is malformed."""
    try:
        return await request.post()
    except (ValueError, LookupError, RuntimeError, AssertionError, HttpProcessingError) as exc:
        raise BodyError("The form is malformed") from exc


def encode_json(value: Any) -> bytes:
    """Encode as JSON; numbers that JSON cannot hold become null (a browser rejects NaN and Infinity)."""
    return to_json(value)


def json_response(value: Any, status: int = 200) -> web.Response:
    """Answer with a JSON document."""
    return web.Response(
        body=encode_json(value), status=status, content_type="application/json", charset="utf-8"
    )


def error_response(message: str, status: int) -> web.Response:
    """Answer with the short error shape of the newer routes."""
    return json_response({"error": message}, status)
