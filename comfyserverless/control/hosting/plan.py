"""Say what a node host is started with, or that there is nothing to start it for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from comfyserverless.control.files import FolderPaths
from comfyserverless.core.config import EngineConfig
from comfyserverless.core.hosting import FolderInfo, HostPlan, HostSettings
from comfyserverless.nodes.registry import BUILTIN


def has_packs(config: EngineConfig, files: FolderPaths) -> bool:
    """Tell whether a custom_nodes folder holds something that could be a pack, and packs may be loaded."""
    if not config.loads_packs:
        return False
    return any(_may_be_pack(folder, name) for folder in files.paths("custom_nodes") for name in _names(folder))


def make_plan(config: EngineConfig, files: FolderPaths, scratch: Path, given_up: Mapping[str, str]) -> HostPlan:
    """Return the plan. scratch: the server's private folder; given_up: packs that ended a host at their
    import."""
    folders = config.folders
    return HostPlan(
        settings=HostSettings(
            base=str(folders.base),
            models=str(folders.models[0] if folders.models else folders.base / "models"),
            folders={
                key: FolderInfo(tuple(files.paths(key)), tuple(sorted(files.extensions(key))))
                for key in files.keys()  # noqa: SIM118 - a method of FolderPaths, not a dict
            },
            flags=dict(config.pack_flags),
            argv=config.argv,
            address=config.address,
            port=config.port,
            http=str(scratch / "packs.sock"),
        ),
        custom_nodes=tuple(files.paths("custom_nodes")),
        whitelist=config.pack_whitelist,
        given_up=dict(given_up),
        places={
            "input": str(folders.input),
            "output": str(folders.output),
            "temp": str(folders.temp),
            "user": str(folders.user),
        },
        output=str(scratch / "packs.out"),
        taken=tuple(BUILTIN.names()),
    )


def mark_of(files: FolderPaths, pack: str) -> object:
    """Return something that changes with the files of a pack, or comes and goes with it."""
    marks: set[tuple[str, int]] = set()
    for folder in files.paths("custom_nodes"):
        for path in (os.path.join(folder, pack), os.path.join(folder, f"{pack}.py")):
            marks.update(_code_in(path))
    return frozenset(marks)


def _code_in(path: str) -> Iterator[tuple[str, int]]:
    """Yield the Python files of a pack with their times of change."""
    named = [path] if path.endswith(".py") else []
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        named += [os.path.join(folder, name) for name in names if name.endswith(".py")]
    for each in named:
        with contextlib.suppress(OSError):
            yield each, os.stat(each).st_mtime_ns


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _may_be_pack(folder: str, name: str) -> bool:
    if name == "__pycache__" or name.startswith(".") or name.endswith(".disabled"):
        return False
    return name.endswith(".py") or os.path.isdir(os.path.join(folder, name))
