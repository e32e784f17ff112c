"""Find names that we do not have, so that packs that only mention them can be imported."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from typing import Any

from comfyserverless.host.layers.refusing import missing_class
from comfyserverless.host.missing import missing_names, unsupported

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]


def refused(module: str) -> Callable[[str], Any]:
    """Return a module's `__getattr__` for what it lacks.

    Capital names are classes that cannot be made, for isinstance checks and subclasses. A function can be
    imported by name, and refuses to be called; looked up in the module it is not there, so that `hasattr`
    works.
    """
    missing = missing_names(module)
    made: dict[str, Any] = {}

    def lookup(name: str) -> Any:
        caller = sys._getframe(1)
        is_import = caller.f_code.co_code[caller.f_lasti] == _IMPORT_FROM
        if name.startswith("_") or not (name[0].isupper() or is_import):
            return missing(name)
        if name not in made:
            full = f"{module}.{name}"
            made[name] = missing_class(full) if name[0].isupper() else unsupported(full)
        return made[name]

    return lookup
