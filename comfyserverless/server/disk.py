"""Touch files for clients: paths that cannot leave their folder, content types, atomic writes.

A type that a browser would run in the page's origin is never served as such for files that users can write.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from aiohttp import web

_TEMPORARY_PREFIX = ".writing-"

#: What file systems without hard links answer.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)

#: Fixed, because the machine's own table may call .js text/plain, which stops modules from loading.
_TYPES = {
    ".html": "text/html",
    ".htm": "text/html",
    ".xhtml": "application/xhtml+xml",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".map": "application/json",
    ".webmanifest": "application/manifest+json",
    ".wasm": "application/wasm",
    ".txt": "text/plain",
    ".md": "text/markdown",
    ".csv": "text/csv",
    ".xml": "application/xml",
    ".xsl": "application/xml",
    ".svg": "image/svg+xml",
    ".mhtml": "multipart/related",
    ".mht": "multipart/related",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".avif": "image/avif",
    ".bmp": "image/bmp",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".ico": "image/x-icon",
    ".mp4": "video/mp4",
    ".m4v": "video/mp4",
    ".mov": "video/quicktime",
    ".webm": "video/webm",
    ".mkv": "video/x-matroska",
    ".mp3": "audio/mpeg",
    ".wav": "audio/wav",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
    ".glb": "model/gltf-binary",
    ".gltf": "model/gltf+json",
    ".obj": "model/obj",
    ".stl": "model/stl",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".ttf": "font/ttf",
    ".otf": "font/otf",
}
_BINARY = "application/octet-stream"
_ACTIVE = frozenset(
    {"text/html", "text/javascript", "text/css", "application/xml", "text/xml", "multipart/related"}
)


def resolve_inside(base: Path | str, relative: str) -> str | None:
    """Return the real path of `relative` below `base`; None if it leaves it, also through a link."""
    try:
        root = os.path.realpath(base)
        path = os.path.realpath(os.path.join(root, relative))
        return path if os.path.commonpath((root, path)) == root else None
    except ValueError:  # a NUL byte, or text that is not a file name
        return None


def is_text(name: str) -> bool:
    """Tell whether a name can be told to clients and come back unchanged: no halves of characters."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_file(path: str) -> bool:
    """Tell whether a path is a file now: one look at the disk, short enough for the event loop."""
    return os.path.isfile(path)


def is_folder(path: str) -> bool:
    """Tell whether a path is a directory now."""
    return os.path.isdir(path)


def content_type_of(name: str) -> str:
    """Return the media type of a file name, `application/octet-stream` if it is unknown."""
    return _TYPES.get(os.path.splitext(name)[1].lower(), _BINARY)


def is_active(content_type: str) -> bool:
    """Tell whether a browser could run such a file as part of the page."""
    return content_type in _ACTIVE or content_type.endswith("+xml")


def serve_file(path: str, content_type: str | None = None) -> web.FileResponse:
    """Answer with a file: ranges, ETag and Last-Modified included."""
    kind = content_type or content_type_of(path)
    charset = "; charset=utf-8" if kind.startswith("text/") or kind == "application/json" else ""
    return web.FileResponse(path, headers={"Content-Type": kind + charset})


def serve_user_file(path: str, name: str) -> web.FileResponse:
    """Answer with a file that a user wrote: shown in the browser, unless it could run there."""
    kind = content_type_of(name)
    response = serve_file(path, _BINARY if is_active(kind) else kind)
    attachment = "attachment; " if is_active(kind) else ""
    response.headers["Content-Disposition"] = f'{attachment}filename="{header_name(name)}"'
    if is_active(kind) or kind == _BINARY:
        response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def header_name(name: str) -> str:
    """Make a file name safe inside a quoted header value."""
    return "".join(letter for letter in name if letter.isprintable() and letter not in '"\\')


def make_folder(path: str) -> None:
    """Make a folder and its parents.

    Raises an OSError that is never FileExistsError: to a writer that means "take another name", but no name
    helps if one of the parents is a file.
    """
    try:
        os.makedirs(path, exist_ok=True)
    except FileExistsError as exc:
        raise NotADirectoryError(errno.ENOTDIR, "a file is in the way", path) from exc
    except RecursionError as exc:  # makedirs calls itself for each missing parent
        raise OSError(errno.ENAMETOOLONG, "the path has too many folders", path) from exc


def write_file(path: str, content: bytes, *, may_replace: bool) -> None:
    """Write a file so that readers see all of it or nothing; parents are made.

    Raises FileExistsError if it exists and may not be replaced, another OSError for names that
    the disk refuses.
    """
    folder = os.path.dirname(path)
    make_folder(folder)
    handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY_PREFIX, dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o666 & ~_UMASK)
        _rename(temporary, path, may_replace=may_replace)
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)


def move_file(source: str, target: str, *, may_replace: bool) -> None:
    """Rename a file; parents of the target are made.

    Raises FileExistsError if the target exists and may not be replaced, FileNotFoundError if the source is
    gone, another OSError for names that the disk refuses.
    """
    make_folder(os.path.dirname(target))
    _rename(source, target, may_replace=may_replace)


def _rename(source: str, target: str, *, may_replace: bool) -> None:
    if may_replace:
        os.replace(source, target)
        return
    try:
        os.link(source, target)  # unlike renaming, it fails if the name is taken
    except OSError as exc:
        if exc.errno not in _NO_LINKS:
            raise
        os.close(os.open(target, os.O_CREAT | os.O_EXCL))  # reserve the name, then replace the reservation
        os.replace(source, target)
    else:
        os.unlink(source)


def is_temporary(name: str) -> bool:
    """Tell whether a file name is one of an unfinished write."""
    return name.startswith(_TEMPORARY_PREFIX)


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_UMASK = _read_umask()
