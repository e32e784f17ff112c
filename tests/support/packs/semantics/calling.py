"""Lists, results of all forms, instances, hidden inputs, coroutines, progress, faults."""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar

import comfy.model_management
import comfy.utils

from .kinds import ANY, Node


class Value(Node):
    """Give what it is given."""

    OPTIONAL = {"value": (ANY, {}), "number": ("INT", {"min": -100, "max": 100})}

    def run(self, value: Any = "default", number: Any = None) -> tuple[Any]:
        return (value if number is None else number,)


class Show(Node):
    """Show a value as text, and how often this instance was called."""

    OPTIONAL = {"value": (ANY, {})}
    OUTPUT_NODE = True

    def __init__(self) -> None:
        self.calls = 0

    def run(self, value: Any = None) -> dict[str, Any]:
        self.calls += 1
        return {"ui": {"text": [repr(value)], "calls": [self.calls]}, "result": (value,)}


class Many(Node):
    """Give the numbers below a count as a list."""

    REQUIRED = {"count": ("INT", {})}
    OUTPUT_IS_LIST = (True,)

    def run(self, count: int) -> tuple[list[int]]:
        return (list(range(count)),)


class Add(Node):
    """Add two numbers."""

    REQUIRED = {"a": ("INT", {}), "b": ("INT", {"default": 5})}
    RETURN_TYPES = ("INT",)

    def run(self, a: int, b: int) -> tuple[int]:
        return (a + b,)


class Whole(Node):
    """Tell what it gets: everything as a list."""

    OPTIONAL = {"value": (ANY, {}), "text": ("STRING", {})}
    HIDDEN = {"me": "UNIQUE_ID"}
    INPUT_IS_LIST = True

    def run(self, me: Any, **given: Any) -> tuple[str]:
        return (f"{sorted(given.items())} {me}",)


class Spread(Node):
    """Give a list and a plain value for each call."""

    REQUIRED = {"value": ("INT", {})}
    RETURN_TYPES = (ANY, ANY)
    OUTPUT_IS_LIST = (True, False)

    def run(self, value: int) -> tuple[list[int], int]:
        return ([value] * value, -value)


class Uneven(Node):
    """Show what differs from call to call."""

    REQUIRED = {"value": ("INT", {})}
    RETURN_TYPES = ()
    OUTPUT_NODE = True

    def run(self, value: int) -> dict[str, Any]:
        return {"ui": {"text": [value], "more": [value * 10]}}


class Short(Node):
    """Give one result of two."""

    RETURN_TYPES = (ANY, ANY)

    def run(self) -> tuple[int]:
        return (1,)


class Counter(Node):
    """Count the calls of this instance."""

    OPTIONAL = {"value": ("INT", {})}

    def __init__(self) -> None:
        self.count = 0

    def run(self, value: int = 0) -> tuple[int]:
        self.count += 1
        return (self.count,)


class Hidden(Node):
    """Tell what its hidden inputs are."""

    HIDDEN = {"prompt": "PROMPT", "me": "UNIQUE_ID", "info": "EXTRA_PNGINFO", "dynamic": "DYNPROMPT"}

    def run(self, prompt: Any, me: str, info: Any, dynamic: Any) -> tuple[str]:
        ids = [dynamic.get_display_node_id(me), dynamic.get_real_node_id(me), dynamic.get_parent_node_id(me)]
        own = dynamic.get_node(me)["class_type"]
        return (f"{sorted(prompt)} {me} {info} {ids} {own} {sorted(dynamic.all_node_ids())}",)


class Slow(Node):
    """Sleep as a coroutine."""

    REQUIRED = {"seconds": ("FLOAT", {})}
    OPTIONAL = {"value": (ANY, {})}

    async def run(self, seconds: float, value: Any = None) -> tuple[Any]:
        await asyncio.sleep(seconds)
        return (value,)


class Meet(Node):
    """Wait, as a coroutine, until so many of one name run side by side and an `Open` of that name has run."""

    REQUIRED = {"name": ("STRING", {}), "count": ("INT", {})}
    OPTIONAL = {"value": (ANY, {})}
    met: ClassVar[dict[str, int]] = {}
    opened: ClassVar[set[str]] = set()

    async def run(self, name: str, count: int, value: Any = None) -> tuple[Any]:
        self.met[name] = self.met.get(name, 0) + 1
        while self.met[name] < count or name not in self.opened:  # noqa: ASYNC110  (the other is no coroutine)
            await asyncio.sleep(0.01)
        return (value,)


class Open(Node):
    """Let those of a name go on that wait."""

    REQUIRED = {"name": ("STRING", {}), "value": (ANY, {})}
    OUTPUT_NODE = True

    def run(self, name: str, value: Any) -> tuple[Any]:
        Meet.opened.add(name)
        return (value,)


class SlowRaise(Node):
    """Fail as a coroutine, for one of its values."""

    REQUIRED = {"value": ("INT", {})}

    async def run(self, value: int) -> tuple[int]:
        await asyncio.sleep(0.05 if value == 1 else 3600)
        raise ValueError(f"later, at {value}")


class Raise(Node):
    """Fail."""

    REQUIRED = {"value": (ANY, {}), "text": ("STRING", {})}

    def run(self, value: Any, text: str) -> tuple[Any]:
        raise ValueError(text)


class Patient(Node):
    """Wait for the user to stop it."""

    OUTPUT_NODE = True

    def run(self) -> tuple[Any]:
        until = time.monotonic() + 3600
        while time.monotonic() < until:
            comfy.model_management.throw_exception_if_processing_interrupted()
            time.sleep(0.01)
        return (None,)


class Progress(Node):
    """Show progress."""

    REQUIRED = {"value": ("INT", {})}

    def run(self, value: int) -> tuple[int]:
        bar = comfy.utils.ProgressBar(2)
        bar.update(1)
        bar.update(1)
        return (value,)


class Loose(Node):
    """Tell which arguments it got."""

    REQUIRED = {"declared": ("INT", {})}

    def run(self, declared: int, **more: Any) -> tuple[str]:
        return (f"{declared} {more}",)


NODES = {
    f"Sem{kind.__name__}": kind
    for kind in (
        Value,
        Show,
        Many,
        Add,
        Whole,
        Spread,
        Uneven,
        Short,
        Counter,
        Hidden,
        Slow,
        Meet,
        Open,
        SlowRaise,
        Raise,
        Patient,
        Progress,
        Loose,
    )
}
