"""Serve the page: the files of the frontend package, extensions of packs, and what it is told is off."""

from __future__ import annotations

import asyncio
import importlib.resources
import os
from functools import cache
from pathlib import Path
from urllib.parse import quote

from aiohttp import web

from comfyserverless.demo.places import web_folder
from comfyserverless.server.bodies import json_response
from comfyserverless.server.disk import is_file, resolve_inside, serve_file
from comfyserverless.server.hosting.packs import PACKS
from comfyserverless.server.keys import WEB_FOLDERS

OWN_PACK = "comfyserverless"
_EXTENSIONS = "extensions"


@cache
def page_folder() -> str:
    """Return the folder of the page's files, from the frontend package."""
    return str(importlib.resources.files("comfyui_frontend_package") / "static")


def own_web_folders() -> dict[str, Path]:
    """Return our own page extension, if this installation has it: pack name -> folder."""
    folder = web_folder()
    return {OWN_PACK: folder} if folder.is_dir() else {}


async def show_index(request: web.Request) -> web.StreamResponse:
    """Serve the page itself, never from a cache."""
    response = serve_file(os.path.join(page_folder(), "index.html"))
    response.headers["Cache-Control"] = "no-cache, no-store, must-revalidate"
    response.headers["Pragma"] = "no-cache"
    response.headers["Expires"] = "0"
    return response


async def show_file(request: web.Request) -> web.StreamResponse:
    """Serve a file of the page; whatever is not one is a plain 404, never the page."""
    return _serve_below(page_folder(), request.match_info["path"])


async def show_extension_file(request: web.Request) -> web.StreamResponse:
    """Serve a file of a pack's page extension, or of the page's own ones."""
    pack, path = request.match_info["pack"], request.match_info["path"]
    folder = request.app[WEB_FOLDERS].get(pack)
    if folder is not None:
        return _serve_below(folder, path)
    answer = _serve_below(page_folder(), f"{_EXTENSIONS}/{pack}/{path}")
    if answer.status == web.HTTPNotFound.status_code:
        folder = (await request.app[PACKS].web_folders()).get(pack)
    return answer if folder is None else _serve_below(folder, path)


def _serve_below(folder: Path | str, name: str) -> web.StreamResponse:
    path = resolve_inside(folder, name)
    if path is None or not is_file(path):
        return web.Response(status=404)
    return serve_file(path)


async def list_extensions(request: web.Request) -> web.Response:
    """List the scripts that the page imports."""
    own = request.app[WEB_FOLDERS]
    folders = {**await request.app[PACKS].web_folders(), **own}
    return json_response(await asyncio.to_thread(_extension_urls, folders))


def _extension_urls(folders: dict[str, Path]) -> list[str]:
    core = Path(page_folder()) / _EXTENSIONS
    urls = [f"/{_EXTENSIONS}/{name}" for name in _scripts_below(core)]
    for pack, folder in folders.items():
        urls += [f"/{_EXTENSIONS}/{quote(pack)}/{quote(name)}" for name in _scripts_below(folder)]
    return urls


def _scripts_below(folder: Path) -> list[str]:
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.js")) if path.is_file()]
    return [name for name in names if resolve_inside(folder, name) is not None]


async def refuse_assets(request: web.Request) -> web.Response:
    """Say that there is no asset system; the feature flag `assets` says so too."""
    error = {"code": "SERVICE_DISABLED", "message": "This server has no asset system", "details": {}}
    return json_response({"error": error}, 503)


ROUTES = (web.get("/extensions", list_extensions),)
"""Routes with an /api twin."""

_ASSET_PATHS = {
    "/api/assets": ("GET", "POST"),
    "/api/assets/{path:.+}": ("GET", "POST", "PUT", "DELETE"),
    "/api/tags": ("GET",),
    "/api/tasks/{id}": ("GET", "DELETE"),
}
ASSET_ROUTES = tuple(
    web.route(method, path, refuse_assets) for path, methods in _ASSET_PATHS.items() for method in methods
)
"""Routes below /api only."""

FILE_HANDLERS = frozenset((show_file, show_extension_file))
"""They take any path: what they have not, a pack may have a route for."""

FILE_ROUTES = (
    web.get("/", show_index),
    web.get("/extensions/{pack}/{path:.+}", show_extension_file),
    web.get("/{path:.+}", show_file),
)
"""Static trees; they come last, because the last one takes every path."""
