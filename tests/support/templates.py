"""Hold the official workflow templates against what the page makes of them.

The templates come from the package `comfyui-workflow-templates-json`. Their classes are described in
tests/unit/graph/workflows/data/object_info.json.gz, in the shape of `/object_info`; templates.json.gz beside it
holds the prompts that the page (frontend 1.58.1, in Chromium, given these descriptions) would send for them.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "unit" / "graph" / "workflows" / "data"

#: Nodes of films, sounds and solids; what they need is beyond pictures.
_OTHER_MEDIA = re.compile(r"Video|Audio|3D|Mesh|Trellis")
_STILL_PICTURES = re.compile(r"(Empty)?HunyuanVideo15|WanImageToVideo|LTXVSeparate")


def template(name: str) -> dict[str, Any]:
    """Return a template as the page would load it."""
    text = (files("comfyui_workflow_templates_json") / "templates" / f"{name}.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


@cache
def local_image_templates() -> tuple[str, ...]:
    """Name the templates that make or change pictures with models of one's own, in the order of the index."""
    folder = files("comfyui_workflow_templates_json") / "templates"
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    names: dict[str, None] = {}
    for group in (group for group in index if group["type"] == "image"):
        for entry in group["templates"]:
            name = entry["name"]
            is_remote = name.startswith("api_") or "API" in entry.get("tags", [])
            if is_remote or entry.get("openSource") is False or not (folder / f"{name}.json").is_file():
                continue
            if not any(map(_is_other_media, node_types(template(name)))):
                names[name] = None
    return tuple(names)


def node_types(document: dict[str, Any]) -> Iterator[str]:
    """Yield the types of all nodes, also inside subgraphs."""
    for node in document.get("nodes", []):
        yield node["type"]
    for each in (document.get("definitions") or {}).get("subgraphs") or []:
        yield from node_types(each)


def _is_other_media(kind: str) -> bool:
    return _OTHER_MEDIA.search(kind) is not None and _STILL_PICTURES.match(kind) is None


@cache
def load_data(name: str) -> Any:
    """Return one of the recorded files; do not change it."""
    return json.loads(gzip.decompress((DATA / name).read_bytes()))


def template_classes() -> dict[str, Any]:
    """Return the descriptions of all classes that the templates use."""
    classes: dict[str, Any] = load_data("object_info.json.gz")
    return classes


def same_order(prompt: dict[str, Any]) -> str:
    """Write a prompt as text, so that ids and inputs must have one order, too.

    Where the page puts the inputs of growing groups depends on the history of a file, so these are sorted.
    """
    ordered = {
        node_id: {**node, "inputs": dict(sorted(node["inputs"].items(), key=_place))}
        for node_id, node in prompt.items()
    }
    return json.dumps(ordered, indent=1)


def _place(item: tuple[str, Any]) -> tuple[bool, str]:
    is_grown = "." in item[0] and isinstance(item[1], list)
    return is_grown, item[0] if is_grown else ""
