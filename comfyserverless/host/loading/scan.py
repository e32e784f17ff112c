"""Find the packs in the custom_nodes folders."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass

from comfyserverless.core.hosting import HostPlan

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PackPlace:
    """One pack. name: of its folder, or of its file without `.py`; path: of either."""

    name: str
    path: str

    @property
    def is_folder(self) -> bool:
        """Tell whether it is a folder."""
        return os.path.isdir(self.path)

    @property
    def code(self) -> str:
        """Return the file that is imported."""
        return os.path.join(self.path, "__init__.py") if self.is_folder else self.path

    @property
    def module_name(self) -> str:
        """Return the name that it has among modules: its path, without dots."""
        return (
            os.path.splitext(self.path)[0].replace(".", "_x_")
            if not self.is_folder
            else self.path.replace(".", "_x_")
        )


def find_packs(plan: HostPlan) -> Iterator[PackPlace]:
    """Yield the packs that may be loaded, folder by folder, each by name."""
    for folder in plan.custom_nodes:
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            place = _place(folder, name)
            if place is None:
                continue
            if plan.whitelist is not None and not {name, place.name} & set(plan.whitelist):
                log.info("pack %s is not loaded: it is not in the whitelist", place.name)
                continue
            yield place


def _place(folder: str, name: str) -> PackPlace | None:
    path = os.path.join(folder, name)
    if name == "__pycache__" or name.startswith(".") or name.endswith(".disabled"):
        return None
    if os.path.isdir(path):
        return PackPlace(name, path)
    stem, extension = os.path.splitext(name)
    return PackPlace(stem, path) if extension == ".py" and os.path.isfile(path) else None
