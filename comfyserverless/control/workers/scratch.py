"""Own the files a server makes outside its folders (link socket, arenas), and remove a dead server's.

Each server holds a lock on `<prefix>lock` while it lives; a lock that can be taken belongs to a dead one. The
memory file system, and the lock with it, may be gone while arenas on disk are still there (a container that
starts again): each of these is locked by its worker.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
import time
from pathlib import Path

_NAME = "comfyserverless-"
_NEW_S = 5.0
_TRIES = 5


def shared_folder() -> Path:
    """Return where shared regions live: the memory file system if there is one."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


class Scratch:
    """Hold one server's scratch files.

    tag: its name, which no other server has; prefix: path prefix of its arenas; spare_prefix: the same on disk,
    for arenas that memory has no room for; folder: private, for the socket.
    """

    def __init__(self, shared: Path) -> None:
        remove_stale(shared)
        self.tag = f"{_NAME}{os.getuid()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.prefix = shared / f"{self.tag}-"
        self.spare_prefix = Path(tempfile.gettempdir()) / self.prefix.name
        self._lock_path = Path(f"{self.prefix}lock")
        self._lock = _make_locked(self._lock_path)
        self.folder = Path(f"{self.prefix}run")
        self.folder.mkdir(mode=0o700)

    def is_live(self, tag: str) -> bool:
        """Tell whether the server of a tag still runs, or ended after this one had started."""
        return self._lock_path.with_name(f"{tag}-lock").exists()

    def close(self) -> None:
        """Remove everything, the lock last."""
        _remove(self._lock_path)
        os.close(self._lock)


def remove_stale(shared: Path) -> int:
    """Remove the files of servers of this user that are gone; returns how many servers that were."""
    removed = 0
    for lock_path in shared.glob(f"{_NAME}{os.getuid()}-*-lock"):
        try:
            lock = os.open(lock_path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            _remove(lock_path)
            removed += 1
        finally:
            os.close(lock)
    for arena in Path(tempfile.gettempdir()).glob(f"{_NAME}{os.getuid()}-*.arena"):
        with contextlib.suppress(OSError):
            _remove_if_dead(arena)
    return removed


def _remove_if_dead(arena: Path) -> None:
    """Remove an arena whose worker is gone; one that was just made may not be locked yet."""
    file = os.open(arena, os.O_RDWR | os.O_CLOEXEC)
    try:
        if time.time() - os.fstat(file).st_mtime > _NEW_S:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            arena.unlink()
    finally:
        os.close(file)


def _make_locked(lock_path: Path) -> int:
    """Make a lock file that is held from when it has its name: others must not take it for a dead server's."""
    nameless = Path(f"{lock_path}.new")
    lock = os.open(nameless, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    nameless.rename(lock_path)
    return lock


def _remove(lock_path: Path) -> None:
    for _ in range(_TRIES):  # a process that is just being ended may still make something
        if not (found := _files_of(lock_path)):
            break
        for path in found:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    lock_path.unlink(missing_ok=True)


def _files_of(lock_path: Path) -> list[Path]:
    """List what a server has, without its lock."""
    prefix = lock_path.name.removesuffix("lock")
    folders = {lock_path.parent, Path(tempfile.gettempdir())}
    return [path for folder in folders for path in folder.glob(f"{prefix}*") if path != lock_path]
