"""List files below search paths; a list is kept until one of its directories changes."""

from __future__ import annotations

import mimetypes
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from comfyserverless.host.folders.table import FolderTable, canonical_key

_CONTENT_KINDS = frozenset({"image", "video", "audio", "model"})
_MODEL_ENDINGS = (".glb", ".gltf", ".obj", ".stl", ".fbx", ".ply")
_EXTRA_IMAGES = (".webp", ".avif")
EXTRA_TYPES = {name[1:]: "image" for name in _EXTRA_IMAGES} | {name[1:]: "model" for name in _MODEL_ENDINGS}
"""Ending -> kind of files that the system's table of types may not know."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Names below `roots`, and the time of change of every directory that was read."""

    roots: tuple[str, ...]
    extensions: frozenset[str]
    names: tuple[str, ...]
    directories: dict[str, float]


class CacheHelper:
    """Stand for what keeps lists within one request: lists are kept here until a directory changes."""

    active = False

    def __enter__(self) -> CacheHelper:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing."""

    def get(self, key: str, default: object = None) -> object:
        """Return the default: nothing is kept here."""
        return default

    def set(self, key: str, value: object) -> None:
        """Do nothing."""

    def clear(self) -> None:
        """Do nothing."""


class Listings:
    """Lists by key. cache: packs delete keys from it to have a folder read again."""

    def __init__(self, table: FolderTable) -> None:
        self._table = table
        self.cache: dict[str, Listing] = {}

    def names(self, key: str) -> list[str]:
        """Return relative names over all paths of a key, sorted, without repeats. Raises KeyError."""
        key = canonical_key(key)
        roots = tuple(self._table.paths(key))
        extensions = frozenset(self._table.extensions_of(key))
        kept = self.cache.get(key)
        if not (isinstance(kept, Listing) and kept.roots == roots and kept.extensions == extensions):
            kept = None
        if kept is None or any(_changed_s(path) != at for path, at in kept.directories.items()):
            kept = self.cache[key] = _read(roots, extensions)
        return list(kept.names)

    def full_path(self, key: str, name: str) -> str | None:
        """Return the first regular file of that name; None for an unknown key. `..` cannot climb out."""
        relative = os.path.relpath(os.path.join("/", name), "/")
        try:
            roots = self._table.paths(key)
        except KeyError:
            return None
        paths = (os.path.join(root, relative) for root in roots)
        return next(filter(os.path.isfile, paths), None)


def _read(roots: tuple[str, ...], extensions: frozenset[str]) -> Listing:
    names: set[str] = set()
    directories: dict[str, float] = {}
    for root in roots:
        directories[root] = _changed_s(root)
        files, seen = walk(root, {".git"})
        directories |= seen
        names.update(filter_extensions(files, extensions))
    return Listing(roots, extensions, tuple(sorted(names)), directories)


def walk(root: str, excluded: Collection[str] = ()) -> tuple[list[str], dict[str, float]]:
    """Return names of files below a folder, relative to it, and when its directories changed (Unix seconds).

    Links are followed, each real directory is read once; directories with an excluded name are skipped.
    """
    names: list[str] = []
    directories: dict[str, float] = {}
    visited: set[str] = set()
    for directory, subfolders, files in os.walk(root, followlinks=True):
        real = os.path.realpath(directory)
        if real in visited:
            subfolders.clear()
            continue
        visited.add(real)
        directories[directory] = _changed_s(directory)
        subfolders[:] = sorted(name for name in subfolders if name not in excluded)
        names += [os.path.relpath(os.path.join(directory, name), root) for name in files]
    return names, directories


def filter_extensions(names: Iterable[str], extensions: Collection[str]) -> list[str]:
    """Return the names with one of the extensions, sorted; all of them if there are no extensions."""
    kept = (n for n in names if not extensions or os.path.splitext(n)[1].lower() in extensions)
    return sorted(kept)


def filter_contents(names: Iterable[str], kinds: Iterable[str]) -> list[str]:
    """Return the names of files of these kinds: image, video, audio, model. Raises ValueError for others."""
    wanted = set(kinds)
    if not wanted <= _CONTENT_KINDS:
        raise ValueError(f"content types are {', '.join(sorted(_CONTENT_KINDS))}, not {sorted(wanted)}")
    return [name for name in names if _kind_of(name) in wanted]


def _kind_of(name: str) -> str:
    lower = name.lower()
    if lower.endswith(_MODEL_ENDINGS):
        return "model"
    if lower.endswith(_EXTRA_IMAGES):
        return "image"
    return (mimetypes.guess_type(name, strict=False)[0] or "").partition("/")[0]


def _changed_s(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return -1.0
