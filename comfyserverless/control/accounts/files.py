"""Confine one tenant to its own files, and to the models it may use."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping
from pathlib import Path

from comfyserverless.control.files import FolderPaths, canonical_key

EMBEDDINGS = "embeddings"


class TenantFiles(FolderPaths):
    """Answer for one tenant what `FolderPaths` answers for a server with one user.

    shared: the server's own paths. bases: the tenant's folders by kind (input, output, temp). allowed: patterns
    of `folder key/name`, None for all models. links: a folder of the server's own, out of the tenant's reach,
    for links to the textual inversions that a restricted tenant may use: workers search whole folders.
    """

    def __init__(
        self,
        shared: FolderPaths,
        bases: Mapping[str, Path],
        allowed: tuple[str, ...] | None,
        links: Path,
    ) -> None:
        super().__init__(shared.folders)
        self._take_over(shared, bases)
        self._allowed = None if allowed is None else [_pattern(each) for each in allowed]
        self._links = links

    def is_allowed(self, key: str, root: str, name: str) -> bool:
        """Tell whether the tenant may use a model file; models that it saved itself are always allowed."""
        if self._allowed is None or root.startswith(f"{self._bases['output']}{os.sep}"):
            return True
        text = f"{canonical_key(key)}/{name.replace(os.sep, '/')}"
        return any(fnmatch.fnmatchcase(text, pattern) for pattern in self._allowed)

    def embedding_folders(self) -> tuple[str, ...]:
        """Return where workers look for textual inversions: for a restricted tenant, a folder of links."""
        if self._allowed is None:
            return super().embedding_folders()
        wanted = {}
        for name in self.names(EMBEDDINGS):
            path = self.full_path(EMBEDDINGS, name)
            if path is not None:
                wanted[name] = os.path.abspath(path)
        _link(self._links, wanted)
        return (str(self._links),)


def _pattern(text: str) -> str:
    key, slash, rest = text.partition("/")
    return f"{canonical_key(key)}{slash}{rest}"


def _link(folder: Path, wanted: Mapping[str, str]) -> None:
    """Make the links in a folder those that are wanted: relative name -> target."""
    folder.mkdir(parents=True, exist_ok=True)
    present = {}
    for directory, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(directory, name)
            present[os.path.relpath(path, folder)] = os.readlink(path)
    for name in present:
        if present[name] != wanted.get(name):
            os.unlink(folder / name)
    for name, target in wanted.items():
        if present.get(name) != target:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.symlink(target, folder / name)
