"""Hold `nodes.NODE_CLASS_MAPPINGS`: all classes, ours and those of packs, live.

What a pack writes into it becomes one of its classes; a built-in class that it replaces is another one for
packs that look it up, and the same for prompts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from comfyserverless.host.library.classes import BuiltinNode, entries, make_class
from comfyserverless.host.library.custom import LOCAL
from comfyserverless.host.library.methods import METHODS
from comfyserverless.host.library.saving import LoadImage, PreviewImage, SaveImage
from comfyserverless.host.loading.registry import REGISTRY

_WRITTEN_BY_HAND = (SaveImage, PreviewImage, LoadImage)
_PACKS = "custom_nodes"


class ClassMappings(dict[str, Any]):
    """A dict that tells the registry of classes what packs write into it."""

    def __init__(self, builtin: Mapping[str, Any]) -> None:
        super().__init__(builtin)
        self._builtin = frozenset(builtin)
        for entry in REGISTRY:
            super().__setitem__(entry.name, entry.cls)
        REGISTRY.listen(super().__setitem__)

    def __setitem__(self, name: str, cls: Any) -> None:
        super().__setitem__(name, cls)
        if name not in self._builtin:
            module = getattr(cls, "RELATIVE_PYTHON_MODULE", None) or _PACKS
            REGISTRY.add_written(str(name), cls, str(module))

    def update(self, *others: Any, **named: Any) -> None:
        """Take over what others have."""
        for name, cls in dict(*others, **named).items():
            self[name] = cls

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return a class, which becomes the given one if there is none."""
        if name not in self:
            self[name] = default
        return self[name]

    def __ior__(self, other: Any) -> ClassMappings:  # type: ignore[override,misc]
        self.update(other)
        return self


def builtin_classes() -> tuple[dict[str, type], dict[str, str]]:
    """Return the classes of built-in nodes by name, and the names that are shown for them."""
    known = entries()
    names: Iterable[str] = known or METHODS
    classes = {name: make_class(name, known.get(name, {}), LOCAL.get(name, BuiltinNode)) for name in names}
    classes |= {cls.__name__: cls for cls in _WRITTEN_BY_HAND if cls.__name__ in classes}
    shown = {name: entry["display_name"] for name, entry in known.items() if entry.get("display_name")}
    return classes, shown
