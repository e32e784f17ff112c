"""Let one server at a time use a user folder and a file of records."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

from comfyserverless.core.errors import ConfigError

log = logging.getLogger(__name__)

FILE_NAME = "server.lock"


class FolderLock:
    """Hold a folder while the process lives; the kernel lets go of it whichever way the process ends.

    file: hold this file of the folder only. Raises ConfigError, with the other server's process id, if it is
    taken, or the folder cannot be written.
    """

    def __init__(self, folder: Path, file: str | None = None) -> None:
        path = folder / (FILE_NAME if file is None else f"{file}.lock")
        held = f"the folder {folder}" if file is None else str(folder / file)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise ConfigError(f"The folder {folder} cannot be used: {exc.strerror}") from exc
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            holder = os.read(self._file, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise ConfigError(
                f"Another server (process {holder}) uses {held}; stop it, or choose another place with"
                f" {'--base-directory' if file is None else '--database'}"
            ) from exc
        except OSError as exc:  # some network file systems have no locks
            log.warning("Cannot lock %s (%s): never start two servers on it", path, exc.strerror)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Let go of the folder; the file stays, because another server may be waiting for it."""
        os.close(self._file)

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
