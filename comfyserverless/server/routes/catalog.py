"""Describe what prompts may name: node classes, model files, their metadata and preview pictures."""

from __future__ import annotations

import asyncio
import glob
import io
import logging
import os
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from comfyserverless.control.files import FolderPaths
from comfyserverless.server.bodies import encode_json, json_response
from comfyserverless.server.disk import resolve_inside
from comfyserverless.server.hosting.packs import PACKS
from comfyserverless.server.keys import files_of
from comfyserverless.server.numbers import whole_number
from comfyserverless.server.pictures import encode_thumbnail, in_picture_thread
from comfyserverless.server.safetensors import cover_image, read_metadata

_log = logging.getLogger(__name__)

_NOT_MODELS = ("configs", "custom_nodes")
_PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif")
_SAFETENSORS = (".safetensors", ".sft")


def describe_nodes(files: FolderPaths, names: tuple[str, ...] | None = None) -> dict[str, Mapping[str, Any]]:
    """Describe node classes (None: all); one that cannot be described is left out, or the page stays empty."""
    from comfyserverless.graph.choices import Choices
    from comfyserverless.graph.object_info import describe_with  # the first request pays, not the start
    from comfyserverless.nodes.registry import BUILTIN

    choices = Choices(files)  # every folder is read once for the whole answer
    infos: dict[str, Mapping[str, Any]] = {}
    for name in BUILTIN.names() if names is None else names:
        declaration = BUILTIN.get(name)
        if declaration is None:
            continue
        try:
            infos[name] = describe_with(declaration, choices)
        except Exception:  # noqa: BLE001  (a broken class must not empty the page)
            _log.exception("The node class %s cannot be described", name)
    return infos


def with_theirs(
    own: Mapping[str, Mapping[str, Any]], theirs: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Return our entries and those of packs; of two for one class ours, but for choices that packs added."""
    added = {
        name: info
        for name, info in theirs.items()
        if name not in own or info.get("python_module") == own[name]["python_module"]
    }
    return {**own, **added}


async def show_nodes(request: web.Request) -> web.Response:
    """Describe all node classes, with the files that are there now as choices; waits for packs to be loaded."""
    files = files_of(request)
    theirs = await request.app[PACKS].object_info(files)
    body = await asyncio.to_thread(lambda: encode_json(with_theirs(describe_nodes(files), theirs)))
    return web.Response(body=body, content_type="application/json", charset="utf-8")


async def show_node(request: web.Request) -> web.Response:
    """Describe one node class, `{}` if there is none of that name."""
    files, name = files_of(request), request.match_info["node_class"]
    theirs = await request.app[PACKS].object_info(files, name)
    own = await asyncio.to_thread(describe_nodes, files, (name,))
    return json_response(with_theirs(own, theirs))


async def list_embeddings(request: web.Request) -> web.Response:
    """List textual inversions as prompts name them, without extension."""
    names = await asyncio.to_thread(files_of(request).names, "embeddings")
    return json_response([os.path.splitext(name)[0] for name in names])


async def list_folders(request: web.Request) -> web.Response:
    """List the model folder keys."""
    return json_response(files_of(request).keys())


async def list_models(request: web.Request) -> web.Response:
    """List the files of a folder key; aliases are not keys here."""
    files, folder = files_of(request), request.match_info["folder"]
    if folder not in files.keys():  # noqa: SIM118  (a method of FolderPaths, not a dict)
        return web.Response(status=404)
    return json_response(await asyncio.to_thread(files.names, folder))


async def list_library(request: web.Request) -> web.Response:
    """List the folders of the page's model library."""
    files = files_of(request)
    return json_response(
        [
            {"name": key, "folders": files.paths(key), "extensions": sorted(files.extensions(key))}
            for key in files.keys()  # noqa: SIM118
            if key not in _NOT_MODELS
        ]
    )


async def list_library_folder(request: web.Request) -> web.Response:
    """List the model files of a folder with size and times, search path by search path."""
    files, folder = files_of(request), request.match_info["folder"]
    if folder in _NOT_MODELS or folder not in files.keys():  # noqa: SIM118
        return web.Response(status=404)
    return json_response(await asyncio.to_thread(_model_files, files, folder))


def _model_files(files: FolderPaths, folder: str) -> list[dict[str, Any]]:
    extensions = files.extensions(folder)
    found: list[dict[str, Any]] = []
    for index, root in enumerate(files.paths(folder)):
        for directory, subfolders, names in os.walk(root, followlinks=True):
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            for name in sorted(names):
                if name.startswith(".") or os.path.splitext(name)[1].lower() not in extensions:
                    continue
                path = os.path.join(directory, name)
                if files.is_allowed(folder, root, os.path.relpath(path, root)):
                    found.extend(_model_file(root, path, index))
    return found


def _model_file(root: str, path: str, index: int) -> list[dict[str, Any]]:
    """Describe one file; nothing if it vanished meanwhile. Times are Unix seconds."""
    try:
        status = os.stat(path)
    except OSError:
        return []
    name = os.path.relpath(path, root).replace(os.sep, "/")
    times = {"modified": status.st_mtime, "created": status.st_ctime}
    return [{"name": name, "pathIndex": index, **times, "size": status.st_size}]


async def show_model_preview(request: web.Request) -> web.Response:
    """Show the picture that lies beside a model, or is embedded in it, as WebP."""
    files, info = files_of(request), request.match_info
    index = whole_number(info["index"])
    if info["folder"] not in files.keys() or index is None:  # noqa: SIM118
        return web.Response(status=404)
    roots = files.paths(info["folder"])
    if not 0 <= index < len(roots):
        return web.Response(status=404)
    path = resolve_inside(roots[index], info["filename"])
    if path is None:
        return web.Response(status=403)
    if not files.is_allowed(info["folder"], roots[index], _name_below(roots[index], path)):
        return web.Response(status=404)
    source = await asyncio.to_thread(_preview_source, os.path.splitext(path)[0])
    if source is None:
        return web.Response(status=404)
    return web.Response(body=await in_picture_thread(encode_thumbnail, source), content_type="image/webp")


def _name_below(root: str, path: str) -> str:
    """Return the name of a real path below a search path."""
    return os.path.relpath(path, os.path.realpath(root))


def _preview_source(stem: str) -> str | io.BytesIO | None:
    """Find a picture for a model path without extension."""
    for middle in ("", ".preview"):
        for extension in _PICTURES:
            if os.path.isfile(stem + middle + extension):
                return stem + middle + extension
    for path in glob.glob(glob.escape(stem) + ".*"):
        if path.endswith(_SAFETENSORS) and (cover := cover_image(read_metadata(path) or {})):
            return io.BytesIO(cover)
    return None


async def show_metadata(request: web.Request) -> web.Response:
    """Show the metadata in a safetensors header."""
    name = request.query.get("filename", "")
    if not name.endswith(_SAFETENSORS) or "\0" in name:
        return web.Response(status=404)
    path = files_of(request).full_path(request.match_info["folder"], name)
    metadata = None if path is None else await asyncio.to_thread(read_metadata, path)
    return web.Response(status=404) if metadata is None else json_response(metadata)


ROUTES = (
    web.get("/object_info", show_nodes),
    web.get("/object_info/{node_class}", show_node),
    web.get("/embeddings", list_embeddings),
    web.get("/models", list_folders),
    web.get("/models/{folder}", list_models),
    web.get("/experiment/models", list_library),
    web.get("/experiment/models/{folder}", list_library_folder),
    web.get("/experiment/models/preview/{folder}/{index}/{filename:.+}", show_model_preview),
    web.get("/view_metadata/{folder}", show_metadata),
)
