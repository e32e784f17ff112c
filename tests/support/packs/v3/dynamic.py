"""Nodes whose inputs depend on what is submitted."""

from __future__ import annotations

import json
from typing import Any

from comfy_api.latest import io


class AutogrowSum(io.ComfyNode):
    """Add as many numbers as there are."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        template = io.Autogrow.TemplatePrefix(io.Int.Input("number", min=0), prefix="number", min=2, max=9)
        return io.Schema(
            node_id="V3AutogrowSum",
            inputs=[io.Autogrow.Input("numbers", template=template)],
            outputs=[io.Int.Output(), io.String.Output(display_name="names")],
        )

    @classmethod
    def execute(cls, numbers: dict[str, int]) -> io.NodeOutput:
        return io.NodeOutput(sum(numbers.values()), ",".join(numbers))


class ComboMode(io.ComfyNode):
    """Tell the chosen mode with what belongs to it."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        deeper = [io.DynamicCombo.Option("x", []), io.DynamicCombo.Option("y", [io.Int.Input("depth", max=5)])]
        modes = [
            io.DynamicCombo.Option("off", []),
            io.DynamicCombo.Option("on", [io.Float.Input("strength"), io.DynamicCombo.Input("kind", deeper)]),
        ]
        return io.Schema(
            node_id="V3ComboMode",
            inputs=[io.DynamicCombo.Input("mode", options=modes)],
            outputs=[io.String.Output()],
        )

    @classmethod
    def execute(cls, mode: dict[str, Any]) -> io.NodeOutput:
        return io.NodeOutput(json.dumps(mode, sort_keys=True))


class Rows(io.ComfyNode):
    """Tell the rows of a group."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        row = [io.String.Input("name", default="?"), io.Int.Input("count", default=1, min=0)]
        return io.Schema(
            node_id="V3Rows",
            inputs=[io.DynamicGroup.Input("rows", row, min=1, max=4)],
            outputs=[io.String.Output()],
        )

    @classmethod
    def execute(cls, rows: list[dict[str, Any]]) -> io.NodeOutput:
        return io.NodeOutput(json.dumps(rows))


class LazyRows(io.ComfyNode):
    """Take the first of lazy inputs that is not zero, asking for one after the other."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        template = io.Autogrow.TemplateNames(io.Int.Input("value", lazy=True), ["a", "b", "c"], min=1)
        return io.Schema(
            node_id="V3LazyRows",
            inputs=[io.Autogrow.Input("values", template=template)],
            outputs=[io.Int.Output()],
        )

    @classmethod
    def check_lazy_status(cls, values: dict[str, tuple[int | None, str]]) -> list[str]:
        for value, name in values.values():
            if value is None:
                return [name]
            if value:
                return []
        return []

    @classmethod
    def execute(cls, values: dict[str, int | None]) -> io.NodeOutput:
        return io.NodeOutput(next((value for value in values.values() if value), 0))
