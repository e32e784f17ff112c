"""Keep the named users of a server without accounts (`--multi-user`): whose settings and files are whose.

As in ComfyUI this is no protection: whoever knows an id is that user. Accounts are what keeps people apart.
"""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path

import msgspec

from comfyserverless.core.errors import ConfigError, PromptError

FILE_NAME = "users.json"
_HIDDEN = "__"
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]+")
_MAX_NAME_CHARS = 64


class UserError(PromptError):
    """The name cannot be a user's."""


class Users:
    """Own the list of users in a folder, read once. Raises ConfigError if it cannot be read."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._names = self._read()

    def names(self) -> dict[str, str]:
        """Return all users: id -> name."""
        return dict(self._names)

    def is_known(self, user: str) -> bool:
        """Tell whether an id is a user's; ids that begin with two underscores never are."""
        return user in self._names and not user.startswith(_HIDDEN)

    def add(self, name: str) -> str:
        """Add a user; returns the new id. Blocks. Raises UserError for a name that cannot be."""
        name = name.strip()
        if not name or len(name) > _MAX_NAME_CHARS or name.startswith(_HIDDEN):
            raise UserError(
                f"A user name has 1 to {_MAX_NAME_CHARS} characters and does not begin with {_HIDDEN}"
            )
        if name in self._names.values():
            raise UserError("There is a user of this name already")
        user = f"{_UNSAFE.sub('', name).lstrip('_')}_{uuid.uuid4()}"
        self._write({**self._names, user: name})
        self._names[user] = name
        return user

    def _read(self) -> dict[str, str]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as exc:
            raise ConfigError(f"{self._path} cannot be read: {exc}") from exc

    def _write(self, names: dict[str, str]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(names))
        os.replace(temporary, self._path)
