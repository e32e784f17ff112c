"""Hold the live table of model folders, which packs read and change as they like.

Values are (list of paths, set of extensions), but packs also write other sequences. With accounts, a search
path below the server's output folder stands for the same one of the tenant that is served.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, MutableMapping, Sequence

from comfyserverless.core.hosting import HostSettings
from comfyserverless.host.bridge import bridge
from comfyserverless.host.folders.defaults import ALIASES, MODEL_EXTENSIONS, default_folders

Entry = tuple[Sequence[str], Collection[str]]


def canonical_key(key: str) -> str:
    """Return the key that an alias stands for; other texts stay as they are."""
    return ALIASES.get(key, key)


class FolderTable:
    """The table, its one set of extensions that all standard keys share, and where the server's output is."""

    def __init__(self, settings: HostSettings) -> None:
        self.extensions: set[str] = set(MODEL_EXTENSIONS)
        self.entries: MutableMapping[str, Entry] = {
            key: (list(info.paths), self._set_of(info.extensions))
            for key, info in default_folders(settings).items()
        }
        self._output = str(bridge().places.output)

    def _set_of(self, extensions: Iterable[str]) -> set[str]:
        given = set(extensions)
        return self.extensions if given == set(MODEL_EXTENSIONS) else given

    def paths(self, key: str) -> list[str]:
        """Return the search paths of a key or alias, for whoever runs now. Raises KeyError."""
        output = str(bridge().places.output)
        paths = [str(path) for path in self.entries[canonical_key(key)][0]]
        if output == self._output:
            return paths
        start = self._output + os.sep
        return [output + os.sep + path[len(start) :] if path.startswith(start) else path for path in paths]

    def extensions_of(self, key: str) -> Collection[str]:
        """Return the extensions of a key or alias; none: every file. Raises KeyError."""
        return self.entries[canonical_key(key)][1]

    def add(self, key: str, path: str, *, is_default: bool = False) -> None:
        """Add a search path at the end, or in front; a new key accepts every file."""
        key = canonical_key(key)
        if key not in self.entries:
            self.entries[key] = ([path], set())
            return
        paths, extensions = self.entries[key]
        if not isinstance(paths, list):
            paths = list(paths)
            self.entries[key] = (paths, extensions)
        if path in paths:
            if not is_default or paths[0] == path:
                return
            paths.remove(path)
        paths.insert(0 if is_default else len(paths), path)
