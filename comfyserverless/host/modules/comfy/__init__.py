"""ComfyUI's `comfy`: parts of it are there without an import of theirs, as on a server that has loaded them."""

import importlib
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    """Import a part of the package when it is first used."""
    if not name.startswith("__"):
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as exc:
            if exc.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"comfyserverless has no {__name__}.{name}", name=name)
