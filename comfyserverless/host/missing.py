"""Say what we do not have, once and by name, to packs that import or call it."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from typing import Any, NoReturn

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]
_HERE = (__file__, __file__.replace("missing.py", "stubs.py"))


def missing_names(module: str) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that raises for names it lacks: AttributeError, so that `hasattr` works.

    For `from module import name` it is an ImportError: Python would put its own text over ours.
    """

    def lookup(name: str) -> NoReturn:
        text = f"comfyserverless has no {module}.{name}"
        if not name.startswith("__") and _is_imported_from():
            raise ImportError(text, name=name)
        raise AttributeError(text, name=name)

    return lookup


def _is_imported_from() -> bool:
    """Tell whether the code that asks for a name of a module does so with `from module import name`."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename in _HERE and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM


def unsupported(name: str) -> Callable[..., NoReturn]:
    """Return a stand-in for a function that can be imported: NotImplementedError when it is called."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"comfyserverless has no {name}: it does nothing on this server")

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    return refuse
