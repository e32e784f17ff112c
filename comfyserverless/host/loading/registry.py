"""Hold the node classes of the packs, as the mappings that packs may also write to after their import."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from comfyserverless.core.hosting import NodeInfo
from comfyserverless.host.contract import ClassEntry, contract_of

log = logging.getLogger(__name__)


class ClassRegistry:
    """Own the node classes by name. Read from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Callable[[str, Any], None]] = []
        #: all and only classes of our own that run here, and that no catalog names.
        self._own: dict[str, ClassEntry] = {}
        #: all and only classes of packs that prompts may name, in the order of registration.
        self._entries: dict[str, ClassEntry] = {}

    def add(self, entry: ClassEntry) -> None:
        """Register a class; of two with one name the last one wins."""
        with self._lock:
            before = self._entries.get(entry.name)
            if before is not None and before.python_module != entry.python_module:
                log.warning(
                    "node class %s of %s replaces that of %s",
                    entry.name,
                    entry.python_module,
                    before.python_module,
                )
            self._entries[entry.name] = entry
        for listener in self._listeners:
            listener(entry.name, entry.cls)

    def add_own(self, entry: ClassEntry) -> None:
        """Let a class of our own run here."""
        self._own[entry.name] = entry

    def find(self, name: str) -> ClassEntry | None:
        """Return a class that can run here, of a pack or of our own."""
        return self._entries.get(name) or self._own.get(name)

    def listen(self, listener: Callable[[str, Any], None]) -> None:
        """Have somebody told (name, class) of every class that is registered from now on."""
        self._listeners.append(listener)

    def add_written(self, name: str, cls: Any, python_module: str) -> None:
        """Register a class that a pack has written into the mapping, unless it is there already."""
        known = self._entries.get(name)
        if known is None or known.cls is not cls:
            self.add(ClassEntry(name, cls, python_module, known.display_name if known is not None else name))

    def get(self, name: str) -> ClassEntry | None:
        """Return a class by name, None if there is none."""
        return self._entries.get(name)

    def __iter__(self) -> Iterator[ClassEntry]:
        with self._lock:
            return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def describe_all(self, begin: Callable[[str], None] | None = None) -> dict[str, NodeInfo]:
        """Describe all classes; one that cannot be described is left out, and logged.

        begin: told the name of a pack before code of its classes runs.
        """
        found: dict[str, NodeInfo] = {}
        last = ""
        for entry in self:
            if begin is not None and entry.python_module != last:
                last = entry.python_module
                begin(last.removeprefix("custom_nodes."))
            try:
                found[entry.name] = contract_of(entry.cls).describe(entry, None)
            except BaseException:  # custom-node call: a broken class must not hide the others
                log.exception("node class %s of %s cannot be described", entry.name, entry.python_module)
        return found


REGISTRY = ClassRegistry()
"""The classes of this process."""
