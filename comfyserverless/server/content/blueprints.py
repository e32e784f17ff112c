"""List subgraph blueprints: ready-made subgraphs that the page offers beside nodes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from comfyserverless.server.content.installed import blueprints_folder
from comfyserverless.server.content.packs import blueprint_files

_ID_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Blueprint:
    """One blueprint. id: the same on every server that has it; pack: what the page shows as its origin."""

    id: str
    source: str
    name: str
    pack: str
    path: str

    def entry(self) -> dict[str, Any]:
        """Return what lists show: neither the graph nor where it lies."""
        return {"source": self.source, "name": self.name, "info": {"node_pack": self.pack}}

    def detail(self) -> dict[str, Any] | None:
        """Return the entry with the graph as text; None if it cannot be read."""
        try:
            with open(self.path, encoding="utf-8") as file:
                return {**self.entry(), "data": file.read()}
        except (OSError, UnicodeDecodeError):
            return None


def blueprints(packs: Mapping[str, str]) -> dict[str, Blueprint]:
    """Find all blueprints, by id."""
    return {each.id: each for each in (*_installed(), *_of_packs(packs))}


def _of_packs(packs: Mapping[str, str]) -> Iterator[Blueprint]:
    for pack, path in blueprint_files(packs):
        yield _blueprint("custom_node", f"custom_nodes.{pack}", path)


def _installed() -> Iterator[Blueprint]:
    folder = blueprints_folder()
    for name in sorted(os.listdir(folder)) if folder is not None else ():
        if folder is not None and name.endswith(".json") and not name.startswith("index"):
            yield _blueprint("templates", "comfyui", os.path.join(folder, name))


def _blueprint(source: str, pack: str, path: str) -> Blueprint:
    name = os.path.splitext(os.path.basename(path))[0]
    digest = hashlib.sha256(f"{source}\0{pack}\0{name}".encode("utf-8", "surrogateescape")).hexdigest()
    return Blueprint(digest[:_ID_DIGITS], source, name, pack, path)
