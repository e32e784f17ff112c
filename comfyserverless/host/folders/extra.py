"""Read extra_model_paths files that packs name, into the live table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from comfyserverless.host.folders.table import FolderTable


def apply_extra_paths(table: FolderTable, file: str) -> None:
    """Add the paths of all sections of a file, relative ones from where it lies.

    Raises OSError and yaml.YAMLError, ValueError if the file does not hold sections of folder keys.
    """
    import yaml  # only processes with such a file pay for the import

    sections = yaml.safe_load(Path(file).read_text(encoding="utf-8")) or {}
    if not isinstance(sections, dict):
        raise ValueError(f"{file}: expected sections, got {type(sections).__name__}")
    for name, section in sections.items():
        if section is None:
            continue
        if not isinstance(section, dict):
            raise ValueError(f"{file}: section {name!r} must hold folder keys")
        _apply_section(table, Path(file).resolve().parent, section)


def _apply_section(table: FolderTable, here: Path, section: dict[str, Any]) -> None:
    root = os.path.normpath(here / _expanded(str(section.get("base_path") or "")))
    for key, value in section.items():
        if key in ("base_path", "is_default") or value is None:
            continue
        lines = value if isinstance(value, list) else str(value).split("\n")
        for line in filter(str.strip, map(str, lines)):
            path = os.path.normpath(os.path.join(root, _expanded(line)))
            table.add(str(key), path, is_default=bool(section.get("is_default", False)))


def _expanded(path: str) -> str:
    return os.path.expandvars(os.path.expanduser(path))
