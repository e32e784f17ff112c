"""Serve what packs and installed packages bring for the page: templates, help, blueprints, translations."""

from __future__ import annotations

import asyncio

from aiohttp import web

from comfyserverless.server.bodies import json_response
from comfyserverless.server.content.blueprints import blueprints
from comfyserverless.server.content.installed import docs_folder, find_file, template_folders
from comfyserverless.server.content.packs import (
    pack_folders,
    replacement_files,
    template_file,
    template_names,
    translations,
)
from comfyserverless.server.content.replacements import Replacements, read_replacements
from comfyserverless.server.disk import serve_file
from comfyserverless.server.hosting.packs import PAGE_WITHIN_S
from comfyserverless.server.keys import ENGINE, TENANTS


def _packs(app: web.Application) -> dict[str, str]:
    """Find the packs; they are the same for all tenants."""
    return pack_folders(app[TENANTS].shared_files)


async def list_pack_templates(request: web.Request) -> web.Response:
    """List the workflow templates of packs."""
    return json_response(await asyncio.to_thread(lambda: template_names(_packs(request.app))))


async def show_pack_template(request: web.Request) -> web.StreamResponse:
    """Serve a file beside a pack's templates: a graph, or its picture."""
    pack, name = request.match_info["pack"], request.match_info["path"]

    def find() -> str | None:
        folder = _packs(request.app).get(pack)
        return None if folder is None else template_file(folder, name)

    return _file(await asyncio.to_thread(find))


async def show_template(request: web.Request) -> web.StreamResponse:
    """Serve a file of the installed templates package; without one there are no templates."""
    return _file(await asyncio.to_thread(find_file, template_folders(), request.match_info["path"]))


async def show_help(request: web.Request) -> web.StreamResponse:
    """Serve a node's help from the installed documentation package."""
    folder = docs_folder()
    folders = () if folder is None else (folder,)
    return _file(await asyncio.to_thread(find_file, folders, request.match_info["path"]))


def _file(path: str | None) -> web.StreamResponse:
    return web.Response(status=404) if path is None else serve_file(path)


async def list_blueprints(request: web.Request) -> web.Response:
    """List the blueprints, without their graphs."""
    found = await asyncio.to_thread(lambda: blueprints(_packs(request.app)))
    return json_response({each.id: each.entry() for each in found.values()})


async def show_blueprint(request: web.Request) -> web.Response:
    """Show one blueprint with its graph, null if there is none of that id."""

    def read() -> object:
        found = blueprints(_packs(request.app)).get(request.match_info["id"])
        return None if found is None else found.detail()

    return json_response(await asyncio.to_thread(read))


async def show_translations(request: web.Request) -> web.Response:
    """Show the translations that packs bring."""
    return json_response(await asyncio.to_thread(lambda: translations(_packs(request.app))))


async def find_replacements(app: web.Application) -> Replacements:
    """Read what packs say about renamed node classes, in files and when they are loaded."""
    catalog = await app[ENGINE].hosting.host.loaded_soon(PAGE_WITHIN_S)
    registered = () if catalog is None else (catalog.replacements,)
    return await asyncio.to_thread(lambda: read_replacements((*replacement_files(_packs(app)), *registered)))


async def show_replacements(request: web.Request) -> web.Response:
    """Show what packs say about renamed node classes."""
    return json_response(await find_replacements(request.app))


ROUTES = (
    web.get("/workflow_templates", list_pack_templates),
    web.get("/global_subgraphs", list_blueprints),
    web.get("/global_subgraphs/{id}", show_blueprint),
    web.get("/node_replacements", show_replacements),
    web.get("/i18n", show_translations),
)
"""Routes with an /api twin."""

FILE_ROUTES = (
    web.get("/api/workflow_templates/{pack}/{path:.+}", show_pack_template),
    web.get("/templates/{path:.+}", show_template),
    web.get("/docs/{path:.+}", show_help),
)
"""Static trees: only the packs' templates are below /api."""
