"""Find what custom node packs bring as plain files, by ComfyUI's names of folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from comfyserverless.control.files import FolderPaths
from comfyserverless.server.disk import resolve_inside

TEMPLATE_FOLDERS = ("example_workflows", "example", "examples", "workflow", "workflows")
_BLUEPRINT_FOLDER = "subgraphs"
_REPLACEMENTS_FILE = "node_replacements.json"
_DISABLED = ".disabled"
_MAX_JSON_BYTES = 16 << 20

#: File in `locales/<language>` -> key of the page's translations that it fills; None fills the top level.
_TRANSLATIONS = {
    "main.json": None,
    "nodeDefs.json": "nodeDefs",
    "commands.json": "commands",
    "settings.json": "settings",
}


def pack_folders(files: FolderPaths) -> dict[str, str]:
    """Return the packs that are installed, by name: folder. Of two with one name the first counts."""
    found: dict[str, str] = {}
    for root in files.paths("custom_nodes"):
        try:
            names = sorted(os.listdir(root))
        except OSError:
            continue
        for name in names:
            if name.startswith((".", "__")) or name.endswith(_DISABLED):
                continue
            folder = os.path.join(root, name)
            if os.path.isdir(folder):
                found.setdefault(name, folder)
    return found


def template_names(packs: Mapping[str, str]) -> dict[str, list[str]]:
    """List the workflow templates of every pack that has some, without their extension."""
    names = {
        pack: [
            os.path.splitext(name)[0]
            for kind in TEMPLATE_FOLDERS
            for name in _json_files(os.path.join(folder, kind))
        ]
        for pack, folder in packs.items()
    }
    return {pack: found for pack, found in names.items() if found}


def template_file(folder: str, name: str) -> str | None:
    """Return the path of a file beside a pack's templates, None if there is none."""
    for kind in TEMPLATE_FOLDERS:
        path = resolve_inside(os.path.join(folder, kind), name)
        if path is not None and os.path.isfile(path):
            return path
    return None


def blueprint_files(packs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (pack, path) of every blueprint."""
    for pack, folder in packs.items():
        place = os.path.join(folder, _BLUEPRINT_FOLDER)
        for name in _json_files(place):
            yield pack, os.path.join(place, name)


def translations(packs: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Merge the translations of all packs: language -> the page's texts. Broken files are left out."""
    merged: dict[str, dict[str, Any]] = {}
    for folder in packs.values():
        locales = Path(folder, "locales")
        if not locales.is_dir():
            continue
        for language in sorted(path for path in locales.iterdir() if path.is_dir()):
            texts = merged.setdefault(language.name, {})
            for name, key in _TRANSLATIONS.items():
                found = read_object(language / name)
                _merge(texts, found if key is None or not found else {key: found})
    return {language: texts for language, texts in merged.items() if texts}


def replacement_files(packs: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield what each pack says about node classes that were renamed."""
    for folder in packs.values():
        found = read_object(Path(folder, _REPLACEMENTS_FILE))
        if found:
            yield found


def read_object(path: Path) -> dict[str, Any]:
    """Read a file that holds a JSON object; an empty one for a file that is missing, broken or huge."""
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            return {}
        value = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add texts to others, branch by branch; what comes later wins."""
    for key, value in more.items():
        present = into.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            _merge(present, value)
        else:
            into[key] = value


def _json_files(folder: str) -> list[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [name for name in names if name.endswith(".json") and os.path.isfile(os.path.join(folder, name))]
