"""Tell the control process which model folders packs have added or changed while they were loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module

import msgspec

from comfyserverless.core.hosting import Catalog, FolderInfo
from comfyserverless.host.folders.module import current
from comfyserverless.host.parts import Parts
from comfyserverless.host.settings import settings


def attach(parts: Parts) -> None:
    """Make the table while the server's own folders are seen, and add what has changed to the catalog."""
    import_module("folder_paths")
    parts.loaded.append(with_folders)


def with_folders(catalog: Catalog) -> Catalog:
    """Return the catalog with the folders that are not as the control process said."""
    return msgspec.structs.replace(catalog, folders=changed_folders(settings().folders))


def changed_folders(told: Mapping[str, FolderInfo]) -> dict[str, FolderInfo]:
    """Return the entries of the live table that differ from those that were told."""
    changed: dict[str, FolderInfo] = {}
    for key, (paths, extensions) in current().table.entries.items():
        absolute = tuple(dict.fromkeys(os.path.abspath(path) for path in paths))
        info = FolderInfo(absolute, tuple(sorted(map(str, extensions))))
        if info != told.get(key):
            changed[str(key)] = info
    return changed
