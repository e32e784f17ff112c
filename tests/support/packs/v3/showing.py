"""Nodes that show something while they run and after."""

from __future__ import annotations

import asyncio

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


class Waits(io.ComfyNode):
    """Tell how far it is until somebody stops it; a minute at most."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(node_id="V3Waits", inputs=[io.Int.Input("seed")], outputs=[io.Int.Output()])

    @classmethod
    async def execute(cls, seed: int) -> io.NodeOutput:
        for step in range(20_000):
            await api.execution.set_progress(step, 20_000)
            await asyncio.sleep(0.05)
        return io.NodeOutput(seed)


class Sounds(io.ComfyNode):
    """Let the page play silence."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(node_id="V3Sounds", inputs=[], outputs=[], is_output_node=True)

    @classmethod
    def execute(cls) -> io.NodeOutput:
        audio = {"waveform": torch.zeros(2, 1, 4410), "sample_rate": 44100}
        return io.NodeOutput(ui=ui.AudioSaveHelper.get_save_audio_ui(audio, "sub/sound", cls))


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
