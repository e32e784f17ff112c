"""Serve files of the input, output and temp folders: raw, as preview, or one channel."""

from __future__ import annotations

import os
from dataclasses import dataclass

from aiohttp import web

from comfyserverless.control.files import FolderPaths
from comfyserverless.server.disk import header_name, is_file, resolve_inside, serve_user_file
from comfyserverless.server.keys import files_of
from comfyserverless.server.numbers import whole_number
from comfyserverless.server.pictures import (
    encode_alpha,
    encode_preview,
    encode_without_alpha,
    in_picture_thread,
)

_KINDS = ("output", "input", "temp")
_FORMATS = ("webp", "jpeg")
_QUALITY_PERCENT = 90


class UnsafePathError(Exception):
    """A file reference may not be followed; status says how to answer."""

    def __init__(self, status: int) -> None:
        super().__init__(f"Refused with {status}")
        self.status = status


@dataclass(frozen=True, slots=True)
class FileReference:
    """A file as clients name it. kind: output, input or temp; a suffix such as ` [input]` overrides it."""

    filename: str
    subfolder: str = ""
    kind: str = "output"


def locate(files: FolderPaths, reference: FileReference) -> str:
    """Return the path of a referenced file, which may not exist.

    Directories in the file name are dropped. Raises UnsafePathError: 400 for a bad name or kind, 403 for a
    place outside the folder.
    """
    name, kind = reference.filename, reference.kind
    for word in _KINDS:
        if name.endswith(f"[{word}]"):
            kind, name = word, name[: -len(word) - 2].rstrip()
    if name.startswith("/") or ".." in name or "\0" in name or kind not in _KINDS:
        raise UnsafePathError(400)
    folder = resolve_inside(files.base(kind), reference.subfolder)
    path = (
        None
        if folder is None
        else resolve_inside(files.base(kind), os.path.join(folder, os.path.basename(name)))
    )
    if path is None:
        raise UnsafePathError(403)
    return path


async def view(request: web.Request) -> web.StreamResponse:
    """Serve one file."""
    query = request.query
    name = query.get("filename", "")
    if not name or name.startswith("blake3:"):
        return web.Response(status=404)
    reference = FileReference(name, query.get("subfolder", ""), query.get("type", "output"))
    try:
        path = locate(files_of(request), reference)
    except UnsafePathError as exc:
        return web.Response(status=exc.status)
    if not is_file(path):
        return web.Response(status=404)
    channel = query.get("channel", "")
    if "preview" in query:
        return await _preview(path, query["preview"], channel)
    if channel == "rgb":
        return _picture(await in_picture_thread(encode_without_alpha, path), path, "png")
    if channel == "a":
        return _picture(await in_picture_thread(encode_alpha, path), path, "png")
    if path.lower().endswith(".svg") and request.headers.get("Sec-Fetch-Dest") == "image":
        return _svg_for_image_element(path)
    return serve_user_file(path, os.path.basename(path))


async def _preview(path: str, wish: str, channel: str) -> web.Response:
    """Re-encode; `wish` is a format with an optional quality, such as `jpeg;80`."""
    kind, _, rest = wish.partition(";")
    if kind not in _FORMATS or "a" in channel:
        kind = "webp"
    last = rest.rpartition(";")[2]
    number = whole_number(last) if last.isdigit() else None
    quality = _QUALITY_PERCENT if number is None else min(100, max(1, number))
    body = await in_picture_thread(encode_preview, path, kind, quality, is_opaque=channel == "rgb")
    return _picture(body, path, kind)


def _picture(body: bytes, path: str, kind: str) -> web.Response:
    name = header_name(os.path.basename(path))
    return web.Response(
        body=body, content_type=f"image/{kind}", headers={"Content-Disposition": f'filename="{name}"'}
    )


def _svg_for_image_element(path: str) -> web.FileResponse:
    """Serve SVG as a picture: scripts in it do not run inside an <img>, and caches must not mix the two."""
    name = header_name(os.path.basename(path))
    headers = {
        "Content-Type": "image/svg+xml",
        "Content-Disposition": f'filename="{name}"',
        "Vary": "Sec-Fetch-Dest",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    return web.FileResponse(path, headers=headers)


ROUTES = (web.get("/view", view),)
