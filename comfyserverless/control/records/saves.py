"""Give the files of a prompt their names once, also if the server dies in the middle and runs the prompt again.

The names are recorded, together with what tells the files from others, before any file has its name. So the
next server knows for every save: the files have their names, they can still be given them, or there are none.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence

from comfyserverless.control.records.base import DatabaseAwayError, NamedSaves
from comfyserverless.control.records.changes import FilesNamed, NamedFile
from comfyserverless.control.records.store import RecordStore
from comfyserverless.control.saving import Publisher, claim, discard, failed_save
from comfyserverless.core.ids import NodeId, PromptId, TenantId
from comfyserverless.graph.lowering import Destination

log = logging.getLogger(__name__)

_KEPT_KINDS = frozenset({"output"})
"""Other folders are emptied when a server starts: what was in them is made again."""


_AWAY_PATIENCE_S = 600.0
_AGAIN_S = 0.2


class RunPublisher:
    """Publish the files of one run of one prompt. kept: what an earlier run of the prompt has published."""

    def __init__(
        self, publisher: Publisher, store: RecordStore, owner: tuple[TenantId, PromptId], kept: NamedSaves
    ) -> None:
        self._publisher = publisher
        self._store = store
        self._owner = owner
        self._kept = kept
        #: node -> how many saves it has made in this run
        self._saves: dict[NodeId, int] = {}
        self._folders: dict[str, None] = {}

    @property
    def folders(self) -> tuple[str, ...]:
        """Return where files of this run have appeared."""
        return tuple(self._folders)

    def expected_number(self, place: Destination) -> int:
        """Return the number that the next file of a place will have if nobody else is faster."""
        return self._publisher.expected_number(place)

    async def publish(
        self, node: NodeId, place: Destination, staged: Sequence[str], extension: str
    ) -> list[dict[str, str]]:
        """Move staged files to their final names; returns ComfyUI's file items in order.

        Files that an earlier run of the prompt has published are returned again, if they are all still there.
        Raises PromptError if the disk refuses one, CapacityError if the names cannot be recorded: then no file
        of this save is left.
        """
        if place.kind not in _KEPT_KINDS:
            return self._publisher.publish(place, staged, extension)
        save = self._saves[node] = self._saves.get(node, -1) + 1
        kept = self._kept.get((node, save), ())
        if kept and len(kept) == len(staged) and all(map(is_published, kept)):
            discard(staged)
            return [file.item() for file in kept]
        self._folders[place.directory] = None
        try:
            return await self._publish(node, save, _Save(place, staged, extension))
        except OSError as exc:
            discard(staged)
            raise failed_save(exc, place) from exc

    async def _publish(self, node: NodeId, save: int, wanted: _Save) -> list[dict[str, str]]:
        published: list[NamedFile] = []
        while len(published) < len(wanted.staged):
            first = len(published)
            with self._publisher.naming(
                wanted.place, range(first, len(wanted.staged)), wanted.extension
            ) as names:
                files = (*published, *wanted.named(first, names))
                await self._record(FilesNamed(*self._owner, node, save, files))
                for file in files[first:]:
                    if not claim(file.staged, file.path):
                        break  # another program was faster: the rest gets other names
                    published.append(file)
        return [file.item() for file in published]

    async def _record(self, names: FilesNamed) -> None:
        """Record names; while the database is away this waits: what runs goes on. Raises CapacityError."""
        deadline_s = time.monotonic() + _AWAY_PATIENCE_S
        while True:
            try:
                return await self._store.write(names)
            except DatabaseAwayError:
                if time.monotonic() > deadline_s:
                    raise
                await asyncio.sleep(_AGAIN_S)


class _Save:
    """The files of one save and where they go."""

    def __init__(self, place: Destination, staged: Sequence[str], extension: str) -> None:
        self.place = place
        self.staged = staged
        self.extension = extension

    def named(self, first: int, names: Sequence[str]) -> list[NamedFile]:
        """Describe the staged files from `first` on with their names to be. Raises OSError if one is gone."""
        files = []
        for path, name in zip(self.staged[first:], names, strict=True):
            status = os.stat(path)
            final = os.path.join(self.place.directory, name)
            shown = (name, self.place.subfolder, self.place.kind)
            files.append(NamedFile(path, final, status.st_ino, status.st_size, *shown))
        return files


def is_published(file: NamedFile) -> bool:
    """Tell whether a file has its final name: that very file, not another one of the name."""
    return _is_at(file, file.path)


def complete_saves(saves: NamedSaves) -> NamedSaves:
    """End what a dead server has begun, and return the saves whose files all have their names.

    What was named and is still staged gets its name. If a file of a save is gone, the others are removed: the
    prompt runs again and saves them all.
    """
    return {key: files for key, files in saves.items() if _complete(files)}


def _complete(files: Sequence[NamedFile]) -> bool:
    named = [is_published(file) or _finish(file) for file in files]
    if all(named):
        return True
    log.info("Files of an unfinished save are gone; it will be repeated: %s", files[0].path)
    discard([file.path for file in files if is_published(file)])
    return False


def _finish(file: NamedFile) -> bool:
    try:
        return _is_at(file, file.staged) and claim(file.staged, file.path)
    except OSError as exc:
        log.warning("Cannot give %s its name: %s", file.path, exc.strerror)
        return False


def _is_at(file: NamedFile, path: str) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    return (status.st_ino, status.st_size) == (file.inode, file.length_bytes)
