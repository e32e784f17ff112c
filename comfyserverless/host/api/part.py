"""Join `comfy_api` to the node host: tell the server which classes packs have renamed."""

from __future__ import annotations

import msgspec

from comfyserverless.core.hosting import Catalog
from comfyserverless.host.api.runtime import registered_replacements
from comfyserverless.host.parts import Parts


def attach(parts: Parts) -> None:
    """Add what packs registered while they were loaded to the catalog."""
    parts.loaded.append(_with_replacements)


def _with_replacements(catalog: Catalog) -> Catalog:
    return msgspec.structs.replace(catalog, replacements=registered_replacements())
