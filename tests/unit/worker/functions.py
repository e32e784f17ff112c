"""Model functions for tests of the worker."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import torch

from comfyserverless.core.memory import DeviceMemory, HostMemory, MemoryCounters, ModelMemory, WeightsPicture
from comfyserverless.sdk.modelfn import IoSetup, ModelFn

MODEL = ModelMemory("a.safetensors", "unet", "", 4, ((0, 3),), (), 2, False, 100, 77)


class Recorded:
    """A pool that counts what it is asked."""

    def __init__(self) -> None:
        self.unloads = 0
        self.waited_s = 0.0

    def picture(self) -> WeightsPicture:
        return WeightsPicture(DeviceMemory(100, 77), HostMemory(), MemoryCounters(disk_layers=3), (MODEL,))

    def unload_all(self) -> None:
        self.unloads += 1

    def take_waited_s(self) -> float:
        waited_s, self.waited_s = self.waited_s, 0.0
        return waited_s


class Double(ModelFn):
    """Double a tensor."""

    name = "test.double"
    lane = "cpu"

    def setup_io(self, io: IoSetup) -> None:
        io.add_input("x")
        io.add_output("y")

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        return {"y": inputs["x"] * 2, "is_inference": torch.is_inference_mode_enabled()}


class Echo(ModelFn):
    """Return the input."""

    name = "test.echo"
    lane = "cpu"

    def setup_io(self, io: IoSetup) -> None:
        io.add_input("x")
        io.add_output("x")

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        return {"x": inputs["x"]}


class Loads(ModelFn):
    """Show what load_model sees."""

    name = "test.loads"

    def setup_io(self, io: IoSetup) -> None:
        io.add_input("x")
        io.add_output("seen")

    def load_model(self, inputs: Mapping[str, Any], pool: Any) -> Mapping[str, Any]:
        return {"seen": f"{type(inputs['x']).__name__} {type(pool).__name__}"}

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        return {"seen": components["seen"]}


class Fail(ModelFn):
    """Raise what it is told to."""

    name = "test.fail"
    lane = "cpu"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def setup_io(self, io: IoSetup) -> None:
        io.add_output("never")

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        raise self.error


class Gate(ModelFn):
    """Wait until it is opened."""

    name = "test.gate"
    lane = "cpu"

    def __init__(self) -> None:
        self.started = threading.Event()
        self.opened = threading.Event()

    def setup_io(self, io: IoSetup) -> None:
        io.add_output("done")

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        self.started.set()
        assert self.opened.wait(60)
        return {"done": torch.ones(1000)}
