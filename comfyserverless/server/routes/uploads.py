"""Take uploads of every media kind (never decoded), and masks painted over an existing picture."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from comfyserverless.control.files import FolderPaths
from comfyserverless.server.bodies import BodyError, json_response, parse_json, read_form
from comfyserverless.server.disk import is_file, is_text, resolve_inside, write_file
from comfyserverless.server.keys import files_of
from comfyserverless.server.pictures import in_picture_thread, with_alpha_of
from comfyserverless.server.routes.media import FileReference, UnsafePathError, locate

_KINDS = ("input", "temp", "output")


@dataclass(frozen=True, slots=True)
class Upload:
    """One uploaded file and where it should go; directory is a real path inside the folder of its kind."""

    name: str
    content: bytes
    directory: str
    subfolder: str
    kind: str
    may_replace: bool


def read_upload(form: Any, files: FolderPaths) -> Upload:
    """Check the fields of an upload. Raises BodyError."""
    image = form.get("image")
    if not isinstance(image, web.FileField) or not image.filename:
        raise BodyError("The form has no file field `image`")
    name, kind = image.filename, _text(form, "type", "input")
    if not is_text(name):
        raise BodyError("The file name is not valid UTF-8")
    if "/" in name or "\\" in name or "\0" in name or name in (".", ".."):
        raise BodyError("The file name may not hold directories")
    if kind not in _KINDS:
        raise BodyError(f"type must be one of {', '.join(_KINDS)}")
    subfolder = _text(form, "subfolder", "")
    directory = resolve_inside(files.base(kind), subfolder)
    if directory is None:
        raise BodyError("subfolder leaves the folder of its type")
    may_replace = _text(form, "overwrite", "") in ("true", "1")
    return Upload(name, image.file.read(), directory, subfolder, kind, may_replace)


def _text(form: Any, key: str, default: str) -> str:
    value = form.get(key, default)
    if not isinstance(value, str):
        raise BodyError(f"`{key}` must be a text field")
    return value


def store(upload: Upload, content: bytes) -> str:
    """Write the content and return the name it got.

    Without overwrite, a file of the same content keeps its name, and others get a counter: `a (1).png`.
    """
    stem, suffix = os.path.splitext(upload.name)
    name, counter = upload.name, 0
    while True:
        path = os.path.join(upload.directory, name)
        if not upload.may_replace and _holds(path, content):
            return name
        try:
            write_file(path, content, may_replace=upload.may_replace)
        except FileExistsError:
            counter += 1
            name = f"{stem} ({counter}){suffix}"
        except OSError as exc:
            raise BodyError("The file name or subfolder is not possible on this server") from exc
        else:
            return name


def _holds(path: str, content: bytes) -> bool:
    try:
        if os.stat(path).st_size != len(content):
            return False
        with open(path, "rb") as file:
            return file.read() == content
    except OSError:
        return False


def _answer(upload: Upload, name: str) -> web.Response:
    return json_response({"name": name, "subfolder": upload.subfolder, "type": upload.kind})


async def upload_image(request: web.Request) -> web.Response:
    """Store a file as it is."""
    upload = read_upload(await _form(request), files_of(request))
    return _answer(upload, await asyncio.to_thread(store, upload, upload.content))


async def upload_mask(request: web.Request) -> web.Response:
    """Store a copy of `original_ref` with the alpha of the uploaded picture."""
    form, files = await _form(request), files_of(request)
    upload = read_upload(form, files)
    reference = parse_json(_text(form, "original_ref", ""))
    if not isinstance(reference, dict) or not isinstance(reference.get("filename"), str):
        raise BodyError("original_ref must be a JSON object with a filename")
    subfolder, kind = str(reference.get("subfolder") or ""), str(reference.get("type") or "output")
    try:
        path = locate(files, FileReference(reference["filename"], subfolder, kind))
    except UnsafePathError as exc:
        return web.Response(status=exc.status)
    if not is_file(path):
        return web.Response(status=400)
    content = await in_picture_thread(with_alpha_of, path, upload.content)
    return _answer(upload, await asyncio.to_thread(store, upload, content))


async def _form(request: web.Request) -> Mapping[str, Any]:
    """Read a multipart form. Raises BodyError if it is none."""
    if not request.content_type.startswith("multipart/"):
        raise BodyError("Expected a multipart form")
    return await read_form(request)


ROUTES = (
    web.post("/upload/image", upload_image),
    web.post("/upload/mask", upload_mask),
)
