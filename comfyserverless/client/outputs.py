"""Save what a run has made on this machine, without ever replacing a file."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from comfyserverless.client.connection import Connection


async def save_outputs(connection: Connection, entries: tuple[dict[str, Any], ...], folder: Path) -> list[Path]:
    """Download files into a folder; returns where they are. Previews count only if there is nothing else."""
    kept = [entry for entry in entries if entry.get("type") == "output"]
    saved = []
    for entry in kept or entries:
        target = free_path(folder, str(entry.get("subfolder") or ""), str(entry["filename"]))
        target.parent.mkdir(parents=True, exist_ok=True)
        await connection.download(entry, target)
        saved.append(target)
    return saved


def free_path(folder: Path, subfolder: str, filename: str) -> Path:
    """Return a path below a folder where no file is yet, whatever names the server gives."""
    parts = [part for part in PurePosixPath(subfolder.replace("\\", "/")).parts if part not in ("/", "..", ".")]
    name = PurePosixPath(filename.replace("\\", "/")).name or "output"
    target = folder.joinpath(*parts, name)
    number = 1
    while target.exists():
        target = target.with_name(f"{Path(name).stem} ({number}){Path(name).suffix}")
        number += 1
    return target
