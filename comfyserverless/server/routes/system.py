"""Tell what this server is: machine, devices, features, console lines, folders."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
from aiohttp import web

from comfyserverless import __version__
from comfyserverless.control.views import WorkerView
from comfyserverless.core.config import ServerConfig
from comfyserverless.core.hosting import COMPATIBLE_VERSION
from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.server.access import identity_of
from comfyserverless.server.bodies import error_response, json_response, read_object
from comfyserverless.server.broadcasts.room import sockets_per_tenant
from comfyserverless.server.content.installed import TEMPLATES_DISTRIBUTIONS
from comfyserverless.server.keys import CONFIG, ENGINE, HUB, LOGS, files_of, tenant_of
from comfyserverless.server.reconnects.resuming import Standing

_RETRY_AFTER_S = "5"
_KINDS = ("output", "input", "temp")


def server_features(config: ServerConfig) -> dict[str, Any]:
    """Return the flags of `/features` and of the websocket exchange."""
    return {
        "supports_preview_metadata": True,
        "max_upload_size": config.max_upload_bytes,
        "node_replacements": True,
        "assets": False,
        "extension": {"manager": {"supports_v4": False}},
    }


@cache
def package_version(name: str) -> str | None:
    """Return an installed package's version without importing it."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def read_memory() -> tuple[int, int]:
    """Return (total, available) bytes of main memory."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return _kib(fields["MemTotal"]), _kib(fields["MemAvailable"])
    except (OSError, KeyError, ValueError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return total, total


def _kib(text: str) -> int:
    return int(text.split()[0]) * 1024


async def show_stats(request: web.Request) -> web.Response:
    """Describe the machine and the workers' devices, the primary one first."""
    total_bytes, free_bytes = read_memory()
    views = request.app[ENGINE].workers()
    frontend = package_version("comfyui-frontend-package")
    templates = next(filter(None, map(package_version, TEMPLATES_DISTRIBUTIONS)), None)
    torch = next((view.torch_version for view in views if view.torch_version), package_version("torch"))
    system = {
        "os": sys.platform,
        "ram_total": total_bytes,
        "ram_free": free_bytes,
        "comfyui_version": COMPATIBLE_VERSION,
        "comfyserverless_version": __version__,
        "required_frontend_version": frontend,
        "installed_templates_version": templates,
        "required_templates_version": None,
        "python_version": sys.version,
        "pytorch_version": torch,
        "embedded_python": False,
        "argv": list(request.app[CONFIG].argv),
        "comfy_package_versions": [_package("comfyui-frontend-package", frontend)],
    }
    devices = [_device(view) for view in views if view.device_total_bytes]
    return json_response({"system": system, "devices": devices or [_processor(total_bytes, free_bytes)]})


def _package(name: str, required: str | None) -> dict[str, str | None]:
    return {"name": name, "installed": package_version(name), "required": required}


def _device(view: WorkerView) -> dict[str, Any]:
    is_processor = view.device_kind == "cpu"
    return {
        "name": view.device_name,
        "type": view.device_kind,
        "index": view.device_index,
        "vram_total": view.device_total_bytes,
        "vram_free": view.device_free_bytes,
        "torch_vram_total": view.device_total_bytes if is_processor else view.resident_bytes,
        "torch_vram_free": view.device_free_bytes if is_processor else 0,
    }


def _processor(total_bytes: int, free_bytes: int) -> dict[str, Any]:
    """Stand in while no worker has reported its device yet."""
    return {
        "name": "cpu",
        "type": "cpu",
        "index": None,
        "vram_total": total_bytes,
        "vram_free": free_bytes,
        "torch_vram_total": total_bytes,
        "torch_vram_free": free_bytes,
    }


async def show_workers(request: web.Request) -> web.Response:
    """Show the worker slots and what losses have cost, for the Workers tab and operators.

    `memory` of a worker (null before its first report, and always for tenants that are no operators, because it
    names models) is `core.memory.MemoryPicture`: {device: {budget_bytes, used_bytes, claimed_bytes}, host:
    {budget_bytes, used_bytes, models}, arena: {total_bytes, used_bytes, blocks, largest_free_bytes}, counters:
    {resident_layers, host_layers, disk_layers, made_layers, host_bytes, disk_bytes, evicted_layers,
    fetched_tensors, fetched_bytes}, models: [{name, kind, variant, layers, resident: [[first, end], ...],
    empty: [[first, end], ...], prefix, is_in_use, total_bytes, resident_bytes}, ...], more_models, link_s}; the
    models come the most recently used first. `node_host` is the process of the custom node packs: {state (none,
    starting, loading, ready, busy, lost), pid, restarts, packs: [{name, path, seconds, error, classes, missing,
    web_name, web_folder}, ...], running, resident_bytes, problem: why nodes of packs are missing now, "" if
    nothing is wrong}. This route is ours, not ComfyUI's.
    """
    return json_response(
        {
            "workers": shown_workers(request),
            "node_host": shown_host(request),
            "recovery": asdict(request.app[ENGINE].recovery()),
        }
    )


def shown_workers(request: web.Request) -> list[dict[str, Any]]:
    """Return the worker slots as the sender of a request may see them."""
    views: list[dict[str, Any]] = msgspec.to_builtins(request.app[ENGINE].workers())
    if not identity_of(request).is_operator:
        for view in views:
            view["running"] = [each for each in view["running"] if _is_own(request, each)]
            view["memory"] = None
    return views


def shown_host(request: web.Request) -> dict[str, Any]:
    """Return the node host as the sender of a request may see it: where packs lie is for operators."""
    view: dict[str, Any] = msgspec.to_builtins(request.app[ENGINE].hosting.host.view())
    if not identity_of(request).is_operator:
        view["running"] = [each for each in view["running"] if _is_own(request, each)]
        view["packs"] = [{**pack, "path": "", "web_folder": ""} for pack in view["packs"]]
    return view


def _is_own(request: web.Request, invocation: str) -> bool:
    """Tell whether an invocation (`prompt#run/node/count`) belongs to one of the sender's prompts."""
    prompt_id = PromptId(invocation.partition("#")[0])
    return any(record.prompt_id == prompt_id for record in request.app[ENGINE].running(tenant_of(request)))


async def show_features(request: web.Request) -> web.Response:
    """Show the server's feature flags."""
    return json_response(server_features(request.app[CONFIG]))


async def open_socket(request: web.Request) -> web.StreamResponse:
    """Run a page's websocket."""
    engine, tenant = request.app[ENGINE], tenant_of(request)
    most = sockets_per_tenant()
    if request.app[HUB].count_of(tenant) >= most:
        answer = error_response(f"{most} websockets are open; close some of them first", 429)
        answer.headers["Retry-After"] = _RETRY_AFTER_S
        return answer

    def look_up(sid: str) -> Standing:
        own = [record for record in engine.running(tenant) if record.client_id == sid]
        return Standing(engine.remaining(tenant), own)

    return await request.app[HUB].serve(request, tenant, look_up)


async def show_logs(request: web.Request) -> web.Response:
    """Show the last console lines as one text."""
    return json_response(request.app[LOGS].text(_lines_of(request)))


async def show_raw_logs(request: web.Request) -> web.Response:
    """Show the last console lines one by one."""
    entries = request.app[LOGS].entries(_lines_of(request))
    return json_response({"entries": entries, "size": {"cols": 80, "rows": 24}})


def _lines_of(request: web.Request) -> TenantId | None:
    """Tell about whom console lines may be shown: operators see all (None), tenants their own."""
    identity = identity_of(request)
    return None if identity.is_operator else identity.tenant


async def subscribe_logs(request: web.Request) -> web.Response:
    """Start or stop console lines on a page's websocket."""
    body = await read_object(request)
    request.app[HUB].set_log_reader(
        tenant_of(request),
        str(body.get("clientId")),
        is_enabled=bool(body.get("enabled")),
        only=_lines_of(request),
    )
    return web.Response()


async def show_folders(request: web.Request) -> web.Response:
    """Show the search paths of each folder key."""
    files = files_of(request)
    return json_response({key: files.paths(key) for key in files.keys()})  # noqa: SIM118


async def list_folder(request: web.Request) -> web.Response:
    """List the files at the top of input, output or temp, newest first."""
    kind = request.match_info["kind"]
    if kind not in _KINDS:
        return json_response({"error": f"The folder must be one of {', '.join(_KINDS)}"}, 400)
    return json_response(await asyncio.to_thread(_newest_first, str(files_of(request).base(kind))))


def _newest_first(folder: str) -> list[str]:
    found: list[tuple[int, str]] = []
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # removed since it was listed
                if entry.is_file() and not entry.name.startswith("."):
                    found.append((entry.stat().st_mtime_ns, entry.name))
    return [name for _, name in sorted(found, reverse=True)]


ROUTES = (
    web.get("/system_stats", show_stats),
    web.get("/features", show_features),
    web.get("/comfyserverless/workers", show_workers),
    web.get("/ws", open_socket),
)
"""Routes with an /api twin."""

INTERNAL_ROUTES = (
    web.get("/internal/logs", show_logs),
    web.get("/internal/logs/raw", show_raw_logs),
    web.patch("/internal/logs/subscribe", subscribe_logs),
    web.get("/internal/folder_paths", show_folders),
    web.get("/internal/files/{kind}", list_folder),
)
"""Routes of the page only, without a twin."""
