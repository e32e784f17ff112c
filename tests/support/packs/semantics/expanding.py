"""Nodes that become other nodes."""

from __future__ import annotations

from typing import Any

from comfy_execution.graph_utils import GraphBuilder

from .kinds import ANY, Node


class Count(Node):
    """Count down by becoming a node of its own class, and add up again."""

    REQUIRED = {"n": ("INT", {})}

    def run(self, n: int) -> Any:
        if n == 0:
            return (0,)
        graph = GraphBuilder()
        rest = graph.node("SemCount", n=n - 1)
        total = graph.node("SemAdd", a=rest.out(0), b=1)
        return {"result": (total.out(0),), "expand": graph.finalize()}


class Showing(Node):
    """Show something, and become nodes among which one shows something too."""

    REQUIRED = {"value": ("INT", {})}

    def run(self, value: int) -> Any:
        graph = GraphBuilder()
        made = graph.node("SemValue", value=value)
        graph.node("SemShow", value=made.out(0)).set_override_display_id("9")
        graph.node("SemRaise", value=1, text="never")
        return {"ui": {"text": ["grows"]}, "result": (made.out(0),), "expand": graph.finalize()}


class Twin(Node):
    """Add a node with an id that is taken."""

    def run(self) -> Any:
        return {"result": (["9", 0],), "expand": {"9": {"class_type": "SemValue", "inputs": {}}}}


class Stranger(Node):
    """Add a node of no class."""

    def run(self) -> Any:
        return {"result": (["x", 0],), "expand": {"x": {"class_type": "SemNothing", "inputs": {}}}}


class Circle(Node):
    """Add a node that waits for this one."""

    HIDDEN = {"me": "UNIQUE_ID"}

    def run(self, me: str) -> Any:
        graph = GraphBuilder()
        made = graph.node("SemValue", value=[me, 0])
        return {"result": (made.out(0),), "expand": graph.finalize()}


class Inner(Node):
    """Become a node that is told as its hidden inputs."""

    def run(self) -> Any:
        graph = GraphBuilder()
        made = graph.node("SemHidden")
        return {"result": (made.out(0),), "expand": graph.finalize()}


class Wrong(Node):
    """Become a node that fails, with a value that validation would have refused."""

    def run(self) -> Any:
        graph = GraphBuilder()
        made = graph.node("SemRaise", value=graph.node("SemValue", number=999).out(0), text="inside")
        return {"result": (made.out(0),), "expand": graph.finalize()}


class Raw(Node):
    """Get a link itself, and splice it into a new graph."""

    REQUIRED = {"source": (ANY, {"rawLink": True})}
    RETURN_TYPES = (ANY, "STRING")

    def run(self, source: Any) -> Any:
        graph = GraphBuilder()
        made = graph.node("SemAdd", a=source, b=100)
        return {"result": (made.out(0), str(source)), "expand": graph.finalize()}


class Objects(Node):
    """Put an object of its own into the graph that it becomes."""

    def run(self) -> Any:
        graph = GraphBuilder()
        made = graph.node("SemValue", value={1, 2})
        return {"result": (made.out(0),), "expand": graph.finalize()}


NODES = {
    f"Sem{kind.__name__}": kind for kind in (Count, Showing, Twin, Stranger, Circle, Inner, Wrong, Raw, Objects)
}
