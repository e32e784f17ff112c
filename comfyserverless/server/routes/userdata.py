"""Keep what users save: workflows, presets, styles, below `<user folder>/<user id>`.

A path arrives as one segment with encoded slashes. Times are integer Unix milliseconds.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from comfyserverless.server.bodies import json_response
from comfyserverless.server.disk import (
    content_type_of,
    is_active,
    is_file,
    is_folder,
    is_temporary,
    move_file,
    resolve_inside,
    serve_file,
    serve_user_file,
    write_file,
)
from comfyserverless.server.keys import CONFIG, user_of

#: Asked for by every page before anything is saved there: a 404 would be an error in each new user's console.
_PAGE_FOLDERS = ("workflows", "subgraphs")
_BAD_NAME = "Invalid file name: it is empty, too long, or names a directory"


def user_folder(request: web.Request) -> str:
    """Return the folder of the request's user; it may not exist yet."""
    return os.path.join(request.app[CONFIG].engine.folders.user, user_of(request))


def _is_set(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() == "true"


def _path_of(request: web.Request, key: str) -> str:
    """Return the real path that a segment names. Raises 400 or 403."""
    name = request.match_info[key]
    name = unquote(name) if "%" in name else name
    if not name.strip("/. "):
        raise web.HTTPBadRequest(reason=_BAD_NAME)
    path = resolve_inside(user_folder(request), name)
    if path is None:
        raise web.HTTPBadRequest(reason=_BAD_NAME) if "\0" in name else web.HTTPForbidden()
    return path


def _file_info(path: str, name: str) -> dict[str, Any] | None:
    """Describe a file; None if it is gone since it was listed."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    times = {"modified": status.st_mtime_ns // 1_000_000, "created": status.st_ctime_ns // 1_000_000}
    return {"path": name, "size": status.st_size, **times}


async def list_files(request: web.Request) -> web.Response:
    """List the files below `dir`: relative paths, their segments too (`split`), or with sizes (`full_info`)."""
    name = request.query.get("dir", "")
    if not name:
        return web.Response(status=400, text="Directory not provided")
    folder = resolve_inside(user_folder(request), name)
    if folder is None:
        return web.Response(status=403)
    if not is_folder(folder):
        if name in _PAGE_FOLDERS and _is_set(request, "full_info"):
            return json_response([])
        return web.Response(status=404, text="Directory not found")
    names = await asyncio.to_thread(_files_below, folder, _is_set(request, "recurse"))
    if _is_set(request, "full_info"):
        infos = (_file_info(os.path.join(folder, name), name) for name in names)
        return json_response([info for info in infos if info is not None])
    if _is_set(request, "split"):
        return json_response([[name, *name.split("/")] for name in names])
    return json_response(names)


def _files_below(folder: str, is_recursive: bool) -> list[str]:
    names: list[str] = []
    for directory, subfolders, files in os.walk(folder):
        subfolders.sort()
        prefix = os.path.relpath(directory, folder)
        kept = sorted(name for name in files if not is_temporary(name))
        names += [name if prefix == "." else f"{prefix}/{name}" for name in kept]
        if not is_recursive:
            break
    return [name for name in names if os.path.isfile(os.path.join(folder, name))]


async def list_entries(request: web.Request) -> web.Response:
    """List files and directories below `path`, directories first; paths are relative to the user's folder."""
    root = resolve_inside(user_folder(request), "")
    folder = resolve_inside(user_folder(request), unquote(request.query.get("path", "")))
    if root is None or folder is None:
        return web.Response(status=403)
    if is_file(folder):
        return web.Response(status=400)
    if not is_folder(folder):
        return json_response([]) if folder == root else web.Response(status=404)
    return json_response(await asyncio.to_thread(_entries_below, root, folder))


def _entries_below(root: str, folder: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for directory, subfolders, files in os.walk(folder):
        for name in (*subfolders, *(file for file in files if not is_temporary(file))):
            path = os.path.join(directory, name)
            entry: dict[str, Any] = {"name": name, "path": os.path.relpath(path, root), "type": "directory"}
            if name not in subfolders:
                info = _file_info(path, name) if os.path.isfile(path) else None
                if info is None:
                    continue
                entry |= {"type": "file", "size": info["size"], "modified": info["modified"]}
            entries.append(entry)
    return sorted(entries, key=lambda entry: (entry["type"] != "directory", entry["name"].lower()))


async def read(request: web.Request) -> web.StreamResponse:
    """Serve one file; only the user's style sheet may act on the page."""
    path = _path_of(request, "file")
    if not is_file(path):
        return web.Response(status=404)
    name = os.path.basename(path)
    response = serve_file(path) if name == "user.css" else serve_user_file(path, name)
    if name != "user.css" and not is_active(content_type_of(name)):
        response.headers["Content-Disposition"] = "attachment; " + response.headers["Content-Disposition"]
        response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "no-cache"
    return response


async def write(request: web.Request) -> web.Response:
    """Store the raw body."""
    path = _path_of(request, "file")
    may_replace = request.query.get("overwrite") != "false"
    body = await request.read()
    try:
        await asyncio.to_thread(write_file, path, body, may_replace=may_replace)
    except FileExistsError:
        return web.Response(status=409, text="File already exists")
    except OSError as exc:
        raise web.HTTPBadRequest(reason=_BAD_NAME) from exc
    return _stored(request, path)


def _stored(request: web.Request, path: str) -> web.Response:
    name = os.path.relpath(path, os.path.realpath(user_folder(request)))
    info = _file_info(path, name) if _is_set(request, "full_info") else None
    return json_response(name if info is None else info)


async def delete(request: web.Request) -> web.Response:
    """Remove one file."""
    path = _path_of(request, "file")
    if not is_file(path):
        return web.Response(status=404)
    try:
        os.unlink(path)
    except FileNotFoundError:  # somebody else was faster
        return web.Response(status=404)
    return web.Response(status=204)


async def move(request: web.Request) -> web.Response:
    """Rename one file."""
    source, target = _path_of(request, "file"), _path_of(request, "dest")
    if not is_file(source):
        return web.Response(status=404)
    may_replace = request.query.get("overwrite") != "false"
    try:
        await asyncio.to_thread(move_file, source, target, may_replace=may_replace)
    except FileExistsError:
        return web.Response(status=409, text="File already exists")
    except FileNotFoundError:  # somebody else was faster
        return web.Response(status=404)
    except OSError as exc:
        raise web.HTTPBadRequest(reason=_BAD_NAME) from exc
    return _stored(request, target)


ROUTES = (
    web.get("/userdata", list_files),
    web.get("/v2/userdata", list_entries),
    web.get("/userdata/{file}", read),
    web.post("/userdata/{file}", write),
    web.delete("/userdata/{file}", delete),
    web.post("/userdata/{file}/move/{dest}", move),
)
