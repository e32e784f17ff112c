"""Import packs one after the other; whatever one of them does, the others are still loaded.

First the `prestartup_script.py` of all, then each pack: its folder's `__init__.py`, or its single file, under a
module name made of its path, which is among the modules before its code runs (relative imports need that).
Before each, `begin` is told its name, so that it is known whose code ended the process if it does.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import time
import tomllib
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from comfyserverless.core.hosting import HostPlan, PackReport
from comfyserverless.host.api.extension import ENTRYPOINT, load_nodes
from comfyserverless.host.contract import ClassEntry
from comfyserverless.host.failing import words_of
from comfyserverless.host.loading.registry import ClassRegistry
from comfyserverless.host.loading.requirements import missing_requirements, package_of, pip_line
from comfyserverless.host.loading.scan import PackPlace, find_packs

log = logging.getLogger(__name__)

WEB_FOLDERS: dict[str, str] = {}
"""/extensions name -> absolute folder. `nodes.EXTENSION_WEB_DIRS` of packs is this object; they may add to
it."""


class PackError(Exception):
    """A pack holds nothing that could be loaded."""


@dataclass(slots=True)
class _Loaded:
    """What became of one pack so far."""

    place: PackPlace
    seconds: float = 0.0
    error: str = ""
    classes: list[str] = field(default_factory=list)
    missing: tuple[str, ...] = ()
    web_name: str = ""
    web_folder: str = ""


class PackLoader:
    """Load all packs of a plan into a registry. begin: told the name of each before its code runs."""

    def __init__(self, plan: HostPlan, registry: ClassRegistry, begin: Callable[[str], None]) -> None:
        self._plan = plan
        self._registry = registry
        self._begin = begin
        self._taken = frozenset(plan.taken)

    def load_all(self) -> tuple[PackReport, ...]:
        """Load all packs, and log how long each took."""
        packs = [_Loaded(place) for place in find_packs(self._plan)]
        for pack in packs:
            pack.error = self._plan.given_up.get(pack.place.name, "")
            if not pack.error and pack.place.is_folder:
                pack.missing = _checked_requirements(pack.place)
                self._try(pack, self._prestart)
        for pack in packs:
            if not pack.error:
                self._try(pack, self._import)
        self._begin("")
        _log_times(packs)
        return tuple(_report(pack) for pack in packs)

    def _try(self, pack: _Loaded, load: Callable[[_Loaded], None]) -> None:
        begin_s = time.perf_counter()
        try:
            load(pack)
        except BaseException as exc:  # noqa: BLE001 - custom-node call: others go on
            pack.error = _told(exc)
            log.error("pack %s cannot be loaded: %s\n%s", pack.place.name, pack.error, _trace(exc))
            pack.missing = pack.missing or tuple(filter(None, [package_of(exc)]))
            if pack.missing:
                log.error(
                    "pack %s lacks packages; install them with: %s", pack.place.name, pip_line(pack.missing)
                )
        pack.seconds += time.perf_counter() - begin_s

    def _prestart(self, pack: _Loaded) -> None:
        path = os.path.join(pack.place.path, "prestartup_script.py")
        if not os.path.isfile(path):
            return
        self._begin(pack.place.name)
        name = f"{pack.place.module_name}.prestartup_script"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        try:
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
        except BaseException as exc:  # noqa: BLE001 - custom-node call: the pack itself may still work
            log.error(
                "prestartup_script.py of pack %s failed: %s\n%s", pack.place.name, _told(exc), _trace(exc)
            )

    def _import(self, pack: _Loaded) -> None:
        self._begin(pack.place.name)
        place = pack.place
        if not os.path.isfile(place.code):
            raise PackError(f"there is no {os.path.basename(place.code)} in {place.path}")
        module = _import_file(place)
        _find_web(pack, module)
        mappings = getattr(module, "NODE_CLASS_MAPPINGS", None)
        if mappings is not None:
            names = getattr(module, "NODE_DISPLAY_NAME_MAPPINGS", None) or {}
            self._register(pack, mappings, names)
        elif hasattr(module, ENTRYPOINT):
            self._register(pack, load_nodes(getattr(module, ENTRYPOINT)), {})
        else:
            raise PackError("it has neither NODE_CLASS_MAPPINGS nor comfy_entrypoint")

    def _register(self, pack: _Loaded, classes: Mapping[str, Any], names: Mapping[str, Any]) -> None:
        module = f"custom_nodes.{pack.place.name}"
        for name, cls in classes.items():
            if name in self._taken:
                log.info("node class %s of pack %s is ignored: it is built in", name, pack.place.name)
                continue
            try:
                cls.RELATIVE_PYTHON_MODULE = module
            except (AttributeError, TypeError):
                log.debug("class %s of pack %s cannot be marked", name, pack.place.name)
            shown = names.get(name) or _schema_name(cls) or name
            self._registry.add(ClassEntry(str(name), cls, module, str(shown)))
            pack.classes.append(str(name))


def _schema_name(cls: Any) -> str | None:
    """Return the display name that a V3 class declares."""
    get = getattr(cls, "GET_SCHEMA", None)
    if not callable(get):
        return None
    try:
        name = get().display_name
    except BaseException:  # noqa: BLE001 - custom-node call: it is described without
        return None
    return str(name) if name else None


def _import_file(place: PackPlace) -> ModuleType:
    spec = importlib.util.spec_from_file_location(place.module_name, place.code)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[place.module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(place.module_name, None)
        raise
    return module


def _find_web(pack: _Loaded, module: ModuleType) -> None:
    """Note the folder of a pack's JavaScript: as its project file says, or its WEB_DIRECTORY."""
    place = pack.place
    folder = place.path if place.is_folder else os.path.dirname(place.path)
    name, web = _project_web(folder) if place.is_folder else ("", "")
    given = getattr(module, "WEB_DIRECTORY", None)
    for key, relative in ((name, web), (place.name, given)):
        path = (
            os.path.abspath(os.path.join(folder, relative))
            if key and isinstance(relative, str) and relative
            else ""
        )
        if path and os.path.isdir(path):
            pack.web_name, pack.web_folder = key, path
            WEB_FOLDERS[key] = path


def _project_web(folder: str) -> tuple[str, str]:
    """Return the project name and its `[tool.comfy] web` of a pyproject.toml, empty texts if there are none."""
    try:
        with open(os.path.join(folder, "pyproject.toml"), "rb") as file:
            project = tomllib.load(file)
        name = project["project"]["name"]
        web = project["tool"]["comfy"]["web"]
    except (OSError, ValueError, KeyError, TypeError):
        return "", ""
    return (str(name), str(web)) if isinstance(web, str) else ("", "")


def _checked_requirements(place: PackPlace) -> tuple[str, ...]:
    missing = missing_requirements(place.path)
    if missing:
        log.warning("pack %s wants packages that are not installed: %s", place.name, pip_line(missing))
    return missing


def _log_times(packs: list[_Loaded]) -> None:
    if not packs:
        return
    lines = [
        f"{pack.seconds:8.1f} s {f'(failed: {pack.error}) ' if pack.error else ''}{pack.place.path}"
        for pack in sorted(packs, key=lambda pack: pack.seconds)
    ]
    log.info("Import times of node packs:\n%s", "\n".join(lines))


def _report(pack: _Loaded) -> PackReport:
    return PackReport(
        name=pack.place.name,
        path=pack.place.path,
        seconds=pack.seconds,
        error=pack.error,
        classes=tuple(pack.classes),
        missing=pack.missing,
        web_name=pack.web_name,
        web_folder=pack.web_folder,
    )


def _told(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {words_of(error)}".split())[:500]


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()
