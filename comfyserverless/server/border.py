"""Guard every request: who may call, how errors leave the server, which answers are cached or compressed.

This is the one place where an unexpected exception becomes an answer: it is logged once with its traceback,
and the client learns nothing about paths or internals.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.typedefs import Middleware

from comfyserverless.core.config import ServerConfig
from comfyserverless.core.errors import CapacityError, PromptError
from comfyserverless.server.bodies import error_response, json_response

_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Signal = Callable[[web.Request, web.StreamResponse], Awaitable[None]]

_DAY_S = 86_400
_HOUR_S = 3_600
_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".gif", ".avif")
_COMPRESS_FROM_BYTES = 1_000
_COMPRESSIBLE = ("application/json", "text/")


@web.middleware
async def error_border(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn our errors into their statuses and everything else into a bare 500."""
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge as exc:
        return problem(request, "too_large", exc.text or "The body is too large", 413)
    except (web.HTTPException, ConnectionError):
        raise
    except (web.RequestPayloadError, HttpProcessingError):
        answer = problem(request, "invalid_request", "The body is broken, or not encoded as declared", 400)
        answer.force_close()  # nobody knows where the next request would begin
        return answer
    except PromptError as exc:
        return problem(request, "invalid_request", str(exc), 400)
    except CapacityError as exc:
        answer = problem(request, "capacity", str(exc), 503)
        answer.headers["Retry-After"] = "1"
        return answer
    except Exception:  # noqa: BLE001  (the one border of all routes)
        _log.exception("%s %s failed", request.method, request.path)
        return problem(request, "server_error", "Internal server error", 500)


def prompt_error(kind: str, message: str, details: str = "", status: int = 400) -> web.Response:
    """Answer in the error shape of `/prompt`."""
    error = {"type": kind, "message": message, "details": details, "extra_info": {}}
    return json_response({"error": error, "node_errors": {}}, status)


def problem(request: web.Request, kind: str, message: str, status: int) -> web.Response:
    """Answer with an error in the shape of the route that was asked."""
    if request.path in ("/prompt", "/api/prompt"):
        return prompt_error(kind, message, message, status)
    return error_response(message, status)


def upload_limit(max_bytes: int, limit_of: Callable[[web.Request], int | None]) -> Middleware:
    """Refuse a body of more than `max_bytes`, or of more than its sender may send.

    One that announces its size is refused before any of it is read.
    """

    @web.middleware
    async def limit(request: web.Request, handler: Handler) -> web.StreamResponse:
        allowed_bytes = max_bytes
        own_bytes = limit_of(request)
        if own_bytes is not None and own_bytes < max_bytes:
            allowed_bytes = own_bytes
            request = request.clone(client_max_size=own_bytes)
        if (request.content_length or 0) > allowed_bytes:
            return problem(
                request, "too_large", f"The body is larger than the limit of {allowed_bytes} bytes", 413
            )
        return await handler(request)

    return limit


def origin_guard(config: ServerConfig) -> Middleware:
    """Keep other web sites from driving a server on this machine; a configured CORS origin turns it off."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method == "OPTIONS":
            return web.Response()
        if config.cors_origin is None and is_foreign(request.headers):
            _log.warning("Refused a request of another site: %s %s", request.method, request.path)
            return web.Response(status=403)
        return await handler(request)

    return guard


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Tell whether a browser sent this for a page of another site."""
    if headers.get("Sec-Fetch-Site") == "cross-site":
        return True
    origin = headers.get("Origin")
    if origin is None:
        return False
    host_name, host_port = place_of(f"//{headers.get('Host', '')}")
    if host_name is None:
        return True
    if not _is_this_machine(host_name):
        return False
    origin_name, origin_port = place_of(origin)
    if host_name != origin_name:
        return True
    return host_port is not None and origin_port is not None and host_port != origin_port


def place_of(url: str) -> tuple[str | None, int | None]:
    """Return host and port of an address; (None, None) for what is none."""
    try:
        parts = urlsplit(url)
        return parts.hostname, parts.port
    except ValueError:
        return None, None


def _is_this_machine(name: str) -> bool:
    """Tell whether a host name leads a browser to its own machine; 0.0.0.0 does as well."""
    name = name.removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_unspecified


def cross_origin_headers(config: ServerConfig) -> Signal:
    """Add CORS headers to every answer, if an origin is configured."""

    async def add(request: web.Request, response: web.StreamResponse) -> None:
        if config.cors_origin is not None:
            response.headers["Access-Control-Allow-Origin"] = config.cors_origin
            response.headers["Access-Control-Allow-Methods"] = "POST, GET, DELETE, PUT, PATCH, OPTIONS"
            response.headers["Access-Control-Allow-Headers"] = "Content-Type, Authorization"
            response.headers["Access-Control-Allow-Credentials"] = "true"

    return add


async def cache_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Let browsers keep images; code, styles and template indexes must be asked for again every time."""
    if "Cache-Control" in response.headers:
        return
    path = request.path.lower()
    if path.endswith((".js", ".css")) or _is_index(path):
        response.headers["Cache-Control"] = "no-cache"
    elif path.endswith(_IMAGE_SUFFIXES):
        if response.status in (200, 206):
            response.headers["Cache-Control"] = f"public, max-age={_DAY_S}"
        elif response.status == 404:
            response.headers["Cache-Control"] = f"public, max-age={_HOUR_S}"


def _is_index(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith("index") and name.endswith(".json")


@web.middleware
async def compress(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Compress texts for clients that take gzip (only with --enable-compress-response-body)."""
    response = await handler(request)
    if not isinstance(response, web.Response) or "gzip" not in request.headers.get("Accept-Encoding", ""):
        return response
    is_text = response.content_type.startswith(_COMPRESSIBLE)
    if is_text and isinstance(response.body, bytes) and len(response.body) >= _COMPRESS_FROM_BYTES:
        response.enable_compression(web.ContentCoding.gzip)
    return response
