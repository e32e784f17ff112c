"""Nodes that decide what else runs: lazy, blocking and expanding ones."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io
from comfy_execution.graph import ExecutionBlocker
from comfy_execution.graph_utils import GraphBuilder


class Switch(io.ComfyNode):
    """Pass one of two inputs on, and run only what makes that one."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        template = io.MatchType.Template("switch")
        return io.Schema(
            node_id="V3Switch",
            inputs=[
                io.Boolean.Input("choice"),
                io.MatchType.Input("on_false", template=template, lazy=True),
                io.MatchType.Input("on_true", template=template, lazy=True),
            ],
            outputs=[io.MatchType.Output(template=template, display_name="output")],
        )

    @classmethod
    def check_lazy_status(cls, choice: bool, on_false: Any = None, on_true: Any = None) -> list[str]:
        return ["on_true" if choice else "on_false"]

    @classmethod
    def execute(cls, choice: bool, on_false: Any = None, on_true: Any = None) -> io.NodeOutput:
        return io.NodeOutput(on_true if choice else on_false)


class Blocks(io.ComfyNode):
    """Hold up everything behind it."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="V3Blocks",
            inputs=[io.String.Input("message")],
            outputs=[io.Int.Output(), io.Int.Output()],
        )

    @classmethod
    def execute(cls, message: str) -> io.NodeOutput:
        return io.NodeOutput(block_execution=message)


class BlocksItem(io.ComfyNode):
    """Hold up what is behind the second output."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="V3BlocksItem", inputs=[io.Int.Input("a")], outputs=[io.Int.Output(), io.Int.Output()]
        )

    @classmethod
    def execute(cls, a: int) -> io.NodeOutput:
        return io.NodeOutput(a, ExecutionBlocker(None))


class Expands(io.ComfyNode):
    """Add by other nodes, as often as asked."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="V3Expands",
            inputs=[io.Int.Input("start", raw_link=True), io.Int.Input("times", min=1, max=9)],
            outputs=[io.Int.Output(), io.Int.Output(display_name="constant")],
            enable_expand=True,
        )

    @classmethod
    def execute(cls, start: Any, times: int) -> io.NodeOutput:
        graph = GraphBuilder()
        value = start
        for _ in range(times):
            value = graph.node("V3AsyncAdd", a=value, b=10).out(0)
        return io.NodeOutput(value, times, expand=graph.finalize())
