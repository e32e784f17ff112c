"""Define what a node can put under `ui`: files that were saved, and how they are grouped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from comfyserverless.host.api.io.base import plain


class UIOutput(ABC):
    """Something that a node shows; becomes the `output` of the `executed` message."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Return it as a ui dict: name -> list."""


class SavedResult(dict[str, Any]):
    """One saved file as the page finds it: filename, subfolder, type (`output`, `temp` or `input`)."""

    def __init__(self, filename: str, subfolder: str, type: Any, **more: Any) -> None:
        super().__init__(filename=filename, subfolder=subfolder, type=plain(type), **more)

    @property
    def filename(self) -> str:
        """Return the file's name."""
        return str(self["filename"])

    @property
    def subfolder(self) -> str:
        """Return the folder below the base folder."""
        return str(self["subfolder"])

    @property
    def type(self) -> str:
        """Return the base folder."""
        return str(self["type"])


class SavedImages(UIOutput):
    """Pictures that were saved."""

    def __init__(self, results: Iterable[SavedResult], is_animated: bool = False) -> None:
        self.results = list(results)
        self.is_animated = is_animated

    def as_dict(self) -> dict[str, Any]:
        """Return the ui dict."""
        animated = {"animated": [True]} if self.is_animated else {}
        return {"images": self.results, **animated}


class SavedAudios(UIOutput):
    """Sounds that were saved."""

    def __init__(self, results: Iterable[SavedResult]) -> None:
        self.results = list(results)

    def as_dict(self) -> dict[str, Any]:
        """Return the ui dict."""
        return {"audio": self.results}
