"""Remember which file a dict of tensors was read from, so that an unchanged one need not be written anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from comfyserverless.core.values import FileRef
from comfyserverless.host.models import scratch


class FileDict(dict[str, Any]):
    """A state dict that knows its file; to everybody else a plain dict."""

    origin: FileRef | None = None
    _read: Mapping[str, int]

    def remember(self, origin: FileRef) -> FileDict:
        """Say that this is all that a file holds; returns the dict itself."""
        self.origin = origin
        self._read = {name: id(value) for name, value in self.items()}
        return self

    def is_untouched(self) -> bool:
        """Tell whether every entry is still the object that was read, and none is missing or new."""
        return self.origin is not None and self._read == {name: id(value) for name, value in self.items()}


def file_of(tensors: Mapping[str, Any]) -> FileRef:
    """Return the file that holds a state dict: where it came from if unchanged, else one that is written."""
    if isinstance(tensors, FileDict) and tensors.is_untouched() and tensors.origin is not None:
        return tensors.origin
    return scratch.keep_tensors({name: value for name, value in tensors.items() if isinstance(value, Tensor)})
