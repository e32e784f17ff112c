"""Say clearly what packs ask for and the server does not have."""

from __future__ import annotations

from typing import Any, NoReturn


class NotSupportedError(NotImplementedError):
    """A pack calls for something that this server does not have; the message names it."""


def refuse(name: str, why: str = "") -> NoReturn:
    """Raise NotSupportedError naming a function."""
    raise NotSupportedError(f"comfyserverless has no {name}" + (f": {why}" if why else ""))


def missing_class(name: str, *bases: type, why: str = "") -> type:
    """Return a class for isinstance checks, and to be subclassed; an object of the class itself cannot be
    made."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self) is made:
            refuse(name, why)

    fields = {
        "__init__": init,
        "__doc__": f"{name}: cannot be made on this server.",
        "__module__": name.rpartition(".")[0],
    }
    made = type(name.rpartition(".")[2], bases, fields)
    return made
