"""Make modules that packs import and that we have no file for: their names are found elsewhere, or refused."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from comfyserverless.host.missing import missing_names, unsupported


class _MadeModule(Loader):
    """Load a module that is made of a lookup."""

    def __init__(self, lookup: Callable[[str], Any]) -> None:
        self._lookup = lookup

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Let Python make an empty one."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Give it its names."""
        vars(module)["__getattr__"] = self._lookup


class StubFinder(MetaPathFinder):
    """Find modules below a package, at any depth, that have no file. parts: its only ones, None: all."""

    def __init__(
        self,
        package: str,
        lookup_of: Callable[[str], Callable[[str], Any]],
        parts: Collection[str] | None = None,
    ) -> None:
        self.package = package
        self._lookup_of = lookup_of
        self._parts = parts

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how a module of the package is made; None for others."""
        parent, _, name = fullname.rpartition(".")
        if not f"{parent}.".startswith(f"{self.package}.") or name.startswith("_"):
            return None
        part = fullname[len(self.package) + 1 :].partition(".")[0]
        if self._parts is not None and part not in self._parts:
            return None
        return importlib.util.spec_from_loader(
            fullname, _MadeModule(self._lookup_of(fullname)), is_package=True
        )


def make_modules_below(
    package: str, lookup_of: Callable[[str], Callable[[str], Any]], parts: Collection[str] | None = None
) -> None:
    """Let modules of a package that have no file be made; once for each package, however often it is loaded.

    parts: the names that may follow the package's, None: all. Packs try what is there by importing it.
    """
    known = [finder for finder in sys.meta_path if isinstance(finder, StubFinder) and finder.package == package]
    if not known:
        sys.meta_path.append(StubFinder(package, lookup_of, parts))


def names_of_nodes(module: str) -> Callable[[str], Any]:
    """Return a `__getattr__` that finds node classes by their names, as the library of `nodes` has them."""
    missing = missing_names(module)

    def lookup(name: str) -> Any:
        if not name.startswith("_"):
            classes: Mapping[str, Any] = importlib.import_module("nodes").NODE_CLASS_MAPPINGS
            if name in classes:
                return classes[name]
        return missing(name)

    return lookup


def refused_names(module: str) -> Callable[[str], Any]:
    """Return a `__getattr__` whose names can all be imported, and refuse to work when they are called."""
    missing = missing_names(module)

    def lookup(name: str) -> Any:
        return missing(name) if name.startswith("_") else unsupported(f"{module}.{name}")

    return lookup
