"""Nodes that show what a test asks for: values, objects, blocks, deaths, floods, requests."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import subprocess
import sys
import time
from typing import Any, ClassVar

import torch

from comfyserverless.host.bridge import bridge

from .wild import ANY, AnyKey


class Node:
    """What all of them share."""

    CATEGORY = "stub"
    FUNCTION = "run"
    RETURN_TYPES: ClassVar[tuple[str, ...]] = ()


class StubAdd(Node):
    """Adds, and says how often this instance did."""

    RETURN_TYPES = ("INT", "INT")
    RETURN_NAMES = ("sum", "calls")

    def __init__(self) -> None:
        self.calls = 0

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        number = ("INT", {"default": 0, "min": -1000, "max": float("inf")})
        return {"required": {"first": number, "second": number}}

    def run(self, first: int, second: int) -> tuple[int, int]:
        self.calls += 1
        return first + second, self.calls


class StubShow(Node):
    """Shows what it gets: its type and its text."""

    OUTPUT_NODE = True

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"value": (ANY,)}, "optional": AnyKey(), "hidden": {"node": "UNIQUE_ID"}}

    def run(self, value: Any, node: str, **more: Any) -> dict[str, Any]:
        shown = [value, *(more[name] for name in sorted(more))]
        return {
            "ui": {"type": [type(each).__name__ for each in shown], "text": [_text(each) for each in shown]},
            "result": (),
        }


class StubBasket:
    """An object that only this process can hold."""

    def __init__(self) -> None:
        self.content: list[Any] = []


class StubObject(Node):
    """Makes an object with a picture in it."""

    RETURN_TYPES = ("STUB_BASKET",)

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"value": ("FLOAT", {"default": 0.5})}}

    def run(self, value: float) -> tuple[StubBasket]:
        basket = StubBasket()
        basket.content.append(torch.full((1, 8, 8, 3), value))
        return (basket,)


class StubOpen(Node):
    """Takes the picture out of the object, and leaves a trace in it."""

    RETURN_TYPES = ("IMAGE", "INT", "STUB_BASKET")

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"basket": ("STUB_BASKET",)}}

    def run(self, basket: StubBasket) -> tuple[torch.Tensor, int, StubBasket]:
        basket.content.append("opened")
        return basket.content[0], len(basket.content), basket


class StubDie(Node):
    """Ends its process in some way."""

    OUTPUT_NODE = True

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"how": (["exit", "segfault", "raise", "leave", "doubt"],)}}

    @classmethod
    def IS_CHANGED(cls, how: str) -> float:
        if how == "doubt":
            os._exit(1)
        return float("nan")

    def run(self, how: str) -> tuple[()]:
        if how == "exit":
            os._exit(1)
        if how == "segfault":
            ctypes.string_at(0)
        if how == "leave":
            sys.exit("a node leaves")
        raise KeyError("no such stub")


class StubSpawn(Node):
    """Starts a program that does not end, and forks its own process; gives both pids."""

    RETURN_TYPES = ("INT", "INT")

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {}}

    def run(self) -> tuple[int, int]:
        program = subprocess.Popen(["sleep", "600"])
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
            os._exit(0)
        return program.pid, pid


class StubFork(Node):
    """Forks, and returns in both processes: here after the fork did."""

    RETURN_TYPES = ("INT",)

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {}}

    @classmethod
    def IS_CHANGED(cls) -> float:
        return float("nan")

    def run(self) -> tuple[int]:
        pid = os.fork()
        if pid:
            time.sleep(0.3)
        return (pid,)


class StubBlock(Node):
    """Sleeps until a file is there, without looking whether anybody still waits."""

    RETURN_TYPES = ("INT",)
    OUTPUT_NODE = True

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"gate": ("STRING", {})}}

    @classmethod
    def IS_CHANGED(cls, gate: str) -> float:
        return float("nan")

    def run(self, gate: str) -> tuple[int]:
        while not os.path.exists(gate):
            time.sleep(0.05)
        return (1,)


class StubShout(Node):
    """Writes lines to standard output: so many, and then more until a file is there."""

    OUTPUT_NODE = True

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"lines": ("INT", {"default": 10, "max": 10_000_000}), "gate": ("STRING", {})}}

    @classmethod
    def IS_CHANGED(cls, lines: int, gate: str) -> float:
        return float("nan")

    def run(self, lines: int, gate: str) -> dict[str, Any]:
        for number in itertools.count():
            if number >= lines and os.path.exists(gate):
                return {"ui": {"lines": [lines]}}
            print("a stub shouts", number)  # noqa: T201 - this is what it is for


class StubSample(Node):
    """Has the server's own sampler work for it."""

    RETURN_TYPES = ("LATENT",)

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {
            "required": {
                "model": ("MODEL",),
                "positive": ("CONDITIONING",),
                "negative": ("CONDITIONING",),
                "latent_image": ("LATENT",),
                "seed": ("INT", {"default": 0}),
            }
        }

    def run(self, **inputs: Any) -> tuple[Any]:
        settings = {
            "steps": 3,
            "cfg": 6.0,
            "sampler_name": "euler_ancestral",
            "scheduler": "normal",
            "denoise": 1.0,
        }
        (latent,) = bridge().ask("run_node", {"class_type": "KSampler", "inputs": {**inputs, **settings}})
        return (latent,)


class StubSum(Node):
    """Adds up a latent: a number that differs if a bit does."""

    RETURN_TYPES = ("STRING",)

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"samples": ("LATENT",)}}

    def run(self, samples: dict[str, Any]) -> tuple[str]:
        return (samples["samples"].contiguous().numpy().tobytes().hex()[:4000],)


class StubWait(Node):
    """A coroutine that reports progress."""

    OUTPUT_NODE = True

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"value": ("INT", {"default": 0}), "seconds": ("FLOAT", {"default": 0.0})}}

    async def run(self, value: int, seconds: float) -> dict[str, Any]:
        bridge().progress(1, 2)
        await asyncio.sleep(seconds)
        bridge().progress(2, 2)
        return {"ui": {"text": [str(value)]}}


class StubPonder(Node):
    """Takes its time to say whether it has changed: until a file is there."""

    OUTPUT_NODE = True

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"gate": ("STRING", {})}}

    @classmethod
    def IS_CHANGED(cls, gate: str) -> float:
        while not os.path.exists(gate):
            time.sleep(0.05)
        return float("nan")

    def run(self, gate: str) -> tuple[()]:
        return ()


class StubMark(Node):
    """Writes into the workflow that is saved with pictures."""

    RETURN_TYPES = ("INT",)

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {
            "required": {"value": ("INT", {"default": 0})},
            "hidden": {"info": "EXTRA_PNGINFO", "graph": "PROMPT"},
        }

    def run(self, value: int, info: dict[str, Any], graph: dict[str, Any]) -> tuple[int]:
        info["marked"] = [value, len(graph)]
        return (value,)


def _text(value: Any) -> str:
    return f"{tuple(value.shape)} {float(value.sum()):g}" if isinstance(value, torch.Tensor) else str(value)


NODE_CLASS_MAPPINGS = {
    cls.__name__: cls
    for cls in (
        StubAdd,
        StubShow,
        StubObject,
        StubOpen,
        StubDie,
        StubFork,
        StubSpawn,
        StubBlock,
        StubShout,
        StubSample,
        StubSum,
        StubWait,
        StubPonder,
        StubMark,
    )
}
NODE_DISPLAY_NAME_MAPPINGS = {"StubAdd": "Add (stub)"}
