"""Nodes that show something while they run and after."""

from __future__ import annotations

import torch
from comfy_api.latest import ComfyAPI, ComfyAPISync, io, ui

api = ComfyAPI()
api_sync = ComfyAPISync()


class Previews(io.ComfyNode):
    """Show a picture, and tell how far it is with another one."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="V3Previews",
            inputs=[io.Float.Input("level", min=0.0, max=1.0, step=0.1)],
            outputs=[io.Image.Output()],
            is_output_node=True,
        )

    @classmethod
    async def execute(cls, level: float) -> io.NodeOutput:
        image = torch.full((1, 8, 8, 3), level)
        await api.execution.set_progress(1, 2)
        await api.execution.set_progress(2, 2, preview_image=image)
        return io.NodeOutput(image, ui=ui.PreviewImage(image, cls=cls))


class Reports(io.ComfyNode):
    """Show any value as text."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="V3Reports",
            display_name="Reports",
            inputs=[io.AnyType.Input("value")],
            outputs=[],
            is_output_node=True,
        )

    @classmethod
    def execute(cls, value: object) -> io.NodeOutput:
        api_sync.execution.set_progress(1, 1)
        return io.NodeOutput(ui=ui.PreviewText(f"{value}"))
