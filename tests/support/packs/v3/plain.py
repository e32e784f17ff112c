"""Nodes that compute: sync and async, checked, fingerprinted, with lists and hidden inputs."""

from __future__ import annotations

import asyncio
import json

from comfy_api.latest import io


class AsyncAdd(io.ComfyNode):
    """Add after a moment."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="V3AsyncAdd",
            display_name="Add, async",
            category="tests/v3",
            inputs=[io.Int.Input("a", default=1), io.Int.Input("b", default=2, optional=True)],
            outputs=[io.Int.Output(display_name="sum")],
        )

    @classmethod
    async def execute(cls, a: int, b: int = 100) -> io.NodeOutput:
        await asyncio.sleep(0.01)
        return io.NodeOutput(a + b)


class Checked(io.ComfyNode):
    """Take even numbers only."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="V3Checked",
            inputs=[io.Int.Input("even", min=0, max=10), io.Combo.Input("kind", options=["a", "b"])],
            outputs=[io.Int.Output()],
        )

    @classmethod
    def validate_inputs(cls, even: int) -> bool | str:
        return True if even % 2 == 0 else f"{even} is odd"

    @classmethod
    def execute(cls, even: int, kind: str) -> io.NodeOutput:
        return io.NodeOutput(even)


class Counted(io.ComfyNode):
    """Give one number after another: the module keeps the state that the class cannot."""

    count = [0]

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(node_id="V3Counted", inputs=[io.Int.Input("seed")], outputs=[io.Int.Output()])

    @classmethod
    def execute(cls, seed: int) -> io.NodeOutput:
        cls.count[0] += 1
        return io.NodeOutput(cls.count[0])


class Fingerprint(io.ComfyNode):
    """Run again when the token changes, whatever the seed is."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="V3Fingerprint",
            inputs=[io.Int.Input("token"), io.AnyType.Input("linked", optional=True)],
            outputs=[io.Int.Output()],
        )

    @classmethod
    def fingerprint_inputs(cls, token: int, linked: object = None) -> object:
        return float("nan") if token < 0 else token

    @classmethod
    def execute(cls, token: int, linked: object = None) -> io.NodeOutput:
        return io.NodeOutput(token)


class Hidden(io.ComfyNode):
    """Tell what the hidden inputs are."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="V3Hidden",
            inputs=[],
            outputs=[io.String.Output()],
            hidden=[io.Hidden.unique_id, io.Hidden.prompt, io.Hidden.extra_pnginfo, io.Hidden.dynprompt],
        )

    @classmethod
    def execute(cls) -> io.NodeOutput:
        own = cls.hidden.dynprompt.get_node(cls.hidden.unique_id)
        told = [cls.hidden.unique_id, sorted(cls.hidden.prompt), cls.hidden.extra_pnginfo, own["class_type"]]
        return io.NodeOutput(json.dumps([*told, cls.hidden.api_key_comfy_org]))


class Lists(io.ComfyNode):
    """Take all inputs as lists and give one of them as a list."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="V3Lists",
            inputs=[io.Int.Input("numbers"), io.Int.Input("times")],
            outputs=[io.Int.Output(is_output_list=True), io.Int.Output(display_name="count")],
            is_input_list=True,
        )

    @classmethod
    def execute(cls, numbers: list[int], times: list[int]) -> io.NodeOutput:
        return io.NodeOutput([number * times[0] for number in numbers for _ in range(2)], len(numbers))


class StatefulTry(io.ComfyNode):
    """Try to keep state on the class."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(node_id="V3StatefulTry", inputs=[io.Int.Input("a")], outputs=[io.Int.Output()])

    @classmethod
    def execute(cls, a: int) -> io.NodeOutput:
        cls.kept = a
        return io.NodeOutput(a)
