"""Keep choices that were made by measuring, so that they stay as they are whatever is measured later.

A choice moves the last bits of pictures: equal prompts must find it made, also after a crash. So it is on disk
before it is used, and the first one for a key holds.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)


class Choices:
    """Choices by key, in a JSON file. path: None keeps them only while the server runs.

    A file that cannot be read is said so of, and replaced by the next choice; so is one that cannot be written,
    whose choices hold while the server runs.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._chosen: dict[str, bool] | None = None

    def find(self, key: str) -> bool | None:
        """Return what was chosen, None if nothing was."""
        return self._all().get(key)

    def keep(self, key: str, choice: bool) -> bool:
        """Make a choice unless it is made; returns the one that holds."""
        chosen = self._all()
        if key not in chosen:
            chosen[key] = choice
            self._write(chosen)
        return chosen[key]

    def _all(self) -> dict[str, bool]:
        if self._chosen is None:
            self._chosen = {} if self._path is None else _read(self._path)
        return self._chosen

    def _write(self, chosen: dict[str, bool]) -> None:
        if self._path is None:
            return
        part = self._path.with_suffix(f".{os.getpid()}.part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("w") as file:
                json.dump(chosen, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._path)
        except OSError as exc:
            log.warning("choices cannot be kept in %s: %s", self._path, exc)


def _read(path: Path) -> dict[str, bool]:
    try:
        found = json.loads(path.read_text())
        return {str(key): bool(choice) for key, choice in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as exc:
        log.warning("choices in %s cannot be read: %r", path, exc)
        return {}
