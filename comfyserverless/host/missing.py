"""Say what we do not have, once and by name, to packs that import or call it."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from typing import Any, NoReturn

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]


def missing_names(module: str) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that raises for names it lacks: AttributeError, so that `hasattr` works.

    For `from module import name` it is an ImportError: Python would put its own text over ours.
    """

    def lookup(name: str) -> NoReturn:
        text = f"comfyserverless has no {module}.{name}"
        caller = sys._getframe(1)
        if not name.startswith("__") and caller.f_code.co_code[caller.f_lasti] == _IMPORT_FROM:
            raise ImportError(text, name=name)
        raise AttributeError(text, name=name)

    return lookup


def unsupported(name: str) -> Callable[..., NoReturn]:
    """Return a stand-in for a function that can be imported: NotImplementedError when it is called."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"comfyserverless has no {name}: it does nothing on this server")

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    return refuse
