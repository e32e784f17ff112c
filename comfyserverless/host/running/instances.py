"""Keep the instances of node classes: one for each node of a tenant, for as long as its graphs have the
node."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from comfyserverless.host.contract import ClassEntry, contract_of

InstanceKey = tuple[str, str, str]
"""Tenant, node id, class name."""


class Instances:
    """Own the instances. One is made at the first call of its node."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: all and only instances that were made and not forgotten.
        self._instances: dict[InstanceKey, tuple[Any, Any]] = {}

    def __len__(self) -> int:
        return len(self._instances)

    def get(self, tenant: str, node_id: str, entry: ClassEntry) -> Any:
        """Return the instance of a node; a class that was replaced meanwhile gets a new one.

        Raises what its __init__ raises.
        """
        key = (tenant, node_id, entry.name)
        with self._lock:
            found = self._instances.get(key)
        if found is not None and found[0] is entry.cls:
            return found[1]
        made = contract_of(entry.cls).new_instance(entry)
        with self._lock:
            return (
                self._instances.setdefault(key, (entry.cls, made))[1]
                if found is None
                else self._put(key, entry, made)
            )

    def forget(self, keys: Iterable[InstanceKey]) -> list[Any]:
        """Drop the instances of nodes that are in no graph any more; returns them: their ends may run code."""
        with self._lock:
            return [self._instances.pop(key, None) for key in keys]

    def _put(self, key: InstanceKey, entry: ClassEntry, made: Any) -> Any:
        self._instances[key] = (entry.cls, made)
        return made
