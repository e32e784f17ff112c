"""Let the server's own nodes and lists see the model folders that packs have added."""

from __future__ import annotations

from typing import Any

import msgspec

from comfyserverless.control.accounts.tenants import Tenants
from comfyserverless.control.hosting.host import PackHost
from comfyserverless.core.hosting import FolderInfo
from comfyserverless.core.ids import InvocationId

_OWN = frozenset({"custom_nodes"})
"""Keys that are settled before packs are loaded."""


def follow_folders(host: PackHost, tenants: Tenants) -> None:
    """Take over the folders of every catalog that the host sends."""

    def take(catalog: Any, _: InvocationId | None) -> None:
        folders = msgspec.convert(catalog.get("folders", {}), dict[str, FolderInfo])
        tenants.adopt({key: info for key, info in folders.items() if key not in _OWN})

    host.listen("catalog", take)
