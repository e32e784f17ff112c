"""Give the module `folder_paths` attributes that follow whoever runs now, and that can be assigned."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from comfyserverless.host.folders.paths import FolderPaths, names_of

KINDS = ("input", "output", "temp", "user")


def _folder(kind: str) -> property:
    """Return the attribute `<kind>_directory`."""

    def read(module: FolderModule) -> str:
        return module.paths.directory(kind)

    def write(module: FolderModule, path: str) -> None:
        module.paths.set_directory(kind, path)

    return property(read, write)


class FolderModule(ModuleType):
    """The class of the module; `fill` makes one of it."""

    paths: FolderPaths
    input_directory = _folder("input")
    output_directory = _folder("output")
    temp_directory = _folder("temp")
    user_directory = _folder("user")


def fill(module: ModuleType) -> None:
    """Make a module `folder_paths`."""
    paths = FolderPaths()
    vars(module).update(names_of(paths), paths=paths)
    for kind in KINDS:
        setattr(module, f"get_{kind}_directory", _getter(paths, kind))
        setattr(module, f"set_{kind}_directory", _setter(paths, kind))
    module.__class__ = FolderModule


def current() -> FolderPaths:
    """Return what the module `folder_paths` of this process works on."""
    module: Any = importlib.import_module("folder_paths")
    paths: FolderPaths = module.paths
    return paths


def _getter(paths: FolderPaths, kind: str) -> Callable[[], str]:
    return lambda: paths.directory(kind)


def _setter(paths: FolderPaths, kind: str) -> Callable[[Any], None]:
    def write(path: Any) -> None:
        paths.set_directory(kind, str(path))

    return write
