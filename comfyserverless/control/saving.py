"""Give saved files their names: prefix tokens, counters, and atomic publication.

Functions write under a staging name in the destination folder; publishing links the file to its final
name, which fails if that name exists, so a file is never overwritten and a repeated invocation never
leaves a second copy.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from comfyserverless.core.errors import PromptError
from comfyserverless.graph.lowering import Destination

log = logging.getLogger(__name__)

STAGED_SUFFIX = ".part"
MAX_PREFIX_BYTES = 1024
MAX_NAME_BYTES = 220
"""File systems allow names of 255 bytes; counter and extension need some."""

_STAGED = re.compile(r"\.(comfyserverless-\d+-\d+-[0-9a-f]+)-[0-9a-f]+_\d+\.part")
_TIME_TOKENS = {
    "%year%": "%Y",
    "%month%": "%m",
    "%day%": "%d",
    "%hour%": "%H",
    "%minute%": "%M",
    "%second%": "%S",
}


def destination(
    base: Path, kind: str, prefix: str, size_px: tuple[int, int], now: time.struct_time
) -> Destination:
    """Resolve a filename prefix below a base folder and create its subfolder.

    size_px: (width, height) for the tokens %width% and %height%; now: local time for the others.
    Raises PromptError if the result is outside the base folder or no file name is left.
    """
    text = prefix.replace("%width%", str(size_px[0])).replace("%height%", str(size_px[1]))
    for token, code in _TIME_TOKENS.items():
        text = text.replace(token, time.strftime(code, now))
    if "\0" in text:
        raise PromptError("Saving failed: filename_prefix holds a NUL character")
    try:
        is_too_long = len(os.fsencode(text)) > MAX_PREFIX_BYTES
        is_too_long |= len(os.fsencode(os.path.basename(text))) > MAX_NAME_BYTES
    except UnicodeEncodeError as exc:
        raise PromptError("Saving failed: filename_prefix is no valid Unicode text") from exc
    if is_too_long:
        raise PromptError(
            f"Saving failed: filename_prefix is too long; allowed are {MAX_PREFIX_BYTES} bytes, of which the"
            f" file name may take {MAX_NAME_BYTES}"
        )
    subfolder, name = os.path.split(os.path.normpath(text))
    root = os.path.realpath(base)
    folder = os.path.realpath(os.path.join(root, subfolder))
    if os.path.commonpath((root, folder)) != root or name == "..":
        raise PromptError(f"Saving outside the {kind} folder is not allowed: filename_prefix {prefix!r}")
    if name in ("", "."):
        raise PromptError(f"Saving failed: filename_prefix {prefix!r} names no file")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as exc:
        raise PromptError(
            f"Saving failed: cannot create the folder of filename_prefix {prefix!r}: {exc.strerror}"
        ) from exc
    return Destination(folder, subfolder.replace(os.sep, "/"), name, kind)


class Publisher:
    """Number files; remembers the last counter per name so that a full folder is listed once."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], int] = {}
        #: how many saves of a name have numbers that no file has yet
        self._naming: dict[tuple[str, str], int] = {}

    def publish(self, place: Destination, staged: Sequence[str], extension: str) -> list[dict[str, str]]:
        """Move staged files to `{name}_{counter:05}_.{extension}`; returns ComfyUI's file items in order.

        Raises PromptError if the disk refuses one; those before it stay published, the staged rest is removed.
        """
        try:
            return self._publish(place, staged, extension)
        except OSError as exc:
            discard(staged)
            raise failed_save(exc, place) from exc

    def expected_number(self, place: Destination) -> int:
        """Return the number that the next file of a place will have if nobody else is faster."""
        return self._next_counter(place)

    @contextmanager
    def naming(self, place: Destination, indexes: Sequence[int], extension: str) -> Iterator[list[str]]:
        """Choose free file names for the files of these indexes of a save, and keep others from choosing them.

        Only within this server: when the names are used, `claim` tells whether another program was faster.
        """
        key = (place.directory, place.name)
        counter = self._next_counter(place)
        self._last[key] = counter + len(indexes) - 1
        self._naming[key] = self._naming.get(key, 0) + 1
        try:
            yield [_file_name(place, index, counter + nth, extension) for nth, index in enumerate(indexes)]
        finally:
            self._naming[key] -= 1
            if not self._naming[key]:
                del self._naming[key]

    def _publish(self, place: Destination, staged: Sequence[str], extension: str) -> list[dict[str, str]]:
        counter = self._next_counter(place)
        items = []
        for index, path in enumerate(staged):
            while True:
                filename = _file_name(place, index, counter, extension)
                counter += 1
                if claim(path, os.path.join(place.directory, filename)):
                    break
            items.append({"filename": filename, "subfolder": place.subfolder, "type": place.kind})
        self._last[(place.directory, place.name)] = counter - 1
        return items

    def _next_counter(self, place: Destination) -> int:
        key = (place.directory, place.name)
        last = self._last.get(key)
        if last is not None and (key in self._naming or _exists_numbered(place, last)):
            return last + 1
        pattern = re.compile(rf"{re.escape(place.name)}_(\d+)(?:_|\.|$)")
        numbers = (pattern.match(entry.name) for entry in os.scandir(place.directory))
        return max((int(match[1]) for match in numbers if match), default=0) + 1


def claim(staged: str, final: str) -> bool:
    """Give a staged file its final name; False if that name is taken. Raises OSError."""
    try:
        os.link(staged, final)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links: reserve the name, then replace the reservation
        try:
            os.close(os.open(final, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        try:
            os.replace(staged, final)
        except OSError:
            os.unlink(final)
            raise
        return True
    os.unlink(staged)
    return True


def discard(paths: Iterable[str]) -> None:
    """Remove files that must not stay; those that are gone are fine, others are told in the log."""
    for path in paths:
        _remove_part(path)


def failed_save(error: OSError, place: Destination) -> PromptError:
    """Describe a save that the disk refused."""
    return PromptError(f"Saving failed: {error.strerror} in the {place.kind} folder")


def _file_name(place: Destination, index: int, counter: int, extension: str) -> str:
    name = place.name.replace("%batch_num%", str(index))
    return f"{name}_{counter:05}_.{extension}"


def _exists_numbered(place: Destination, counter: int) -> bool:
    """Tell whether the last published file is still there; a cleared folder starts again at 1."""
    start = f"{place.name}_{counter:05}_"
    return any(os.path.exists(os.path.join(place.directory, f"{start}.{kind}")) for kind in ("png", "latent"))


def remove_parts(directory: str, stem: str) -> None:
    """Remove what a saving function wrote, `{stem}_0.part` and so on, if it was not published."""
    for index in itertools.count():
        try:
            os.unlink(os.path.join(directory, f"{stem}_{index}{STAGED_SUFFIX}"))
        except OSError:  # published, never written, or out of reach: none of the later ones is there either
            return


def remove_staged(base: Path, is_live: Callable[[str], bool]) -> None:
    """Remove staging files below a base folder that a killed server left, and no other hidden files.

    is_live: tell whether the server of a staging tag still runs; servers may share a folder.
    """
    for directory, _, files in os.walk(base):
        for name in files:
            if (match := _STAGED.fullmatch(name)) and not is_live(match[1]):
                _remove_part(os.path.join(directory, name))


def _remove_part(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as exc:
        log.warning("Cannot remove the unfinished file %s: %s", path, exc.strerror)
