"""Inputs that are evaluated only if a node asks for them."""

from __future__ import annotations

from typing import Any

from .kinds import ANY, Node

LAZY = (ANY, {"lazy": True})


class Switch(Node):
    """Choose one of two inputs, and ask for that one only."""

    REQUIRED = {"switch": ("BOOLEAN", {}), "on": LAZY, "off": LAZY}

    def check_lazy_status(self, switch: bool, on: Any, off: Any) -> list[Any]:
        return ["on" if switch else "off", "switch", 3]

    def run(self, switch: bool, on: Any, off: Any) -> tuple[Any]:
        return ((on, off),)


class ListSwitch(Switch):
    """The same over lists: what is not there is a tuple with nothing in it."""

    INPUT_IS_LIST = True

    def check_lazy_status(self, switch: Any, on: Any, off: Any) -> list[Any]:
        return ["on"] if list(on) == [None] and switch[0] else []


class Step(Node):
    """Ask for one input after the other."""

    OPTIONAL = {"a": LAZY, "b": LAZY, "c": LAZY}

    def check_lazy_status(self, **given: Any) -> list[str]:
        missing = [name for name, value in sorted(given.items()) if value is None]
        return missing[:1]

    def run(self, **given: Any) -> tuple[Any]:
        return (sorted(given.items()),)


class Never(Node):
    """Have a lazy input and nobody to ask for it."""

    REQUIRED = {"value": LAZY}

    def run(self, value: Any) -> tuple[Any]:
        return (value,)


class Greedy(Node):
    """Ask for an input that is not there."""

    OPTIONAL = {"value": LAZY}

    def check_lazy_status(self, value: Any = None) -> list[str]:
        return ["other"]

    def run(self, value: Any = None) -> tuple[Any]:
        return (value,)


NODES = {f"Sem{kind.__name__}": kind for kind in (Switch, ListSwitch, Step, Never, Greedy)}
