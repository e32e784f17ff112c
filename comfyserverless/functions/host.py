"""Declare functions of the CPU lane in few words."""

from __future__ import annotations

from typing import ClassVar

from comfyserverless.core.modelfn import Lane
from comfyserverless.sdk.modelfn import IoSetup, ModelFn


class HostFn(ModelFn):
    """A function that runs on the CPU lane and loads nothing.

    takes, gives: its input and output ports in order, separated by spaces.
    """

    lane: ClassVar[Lane] = "cpu"
    takes: ClassVar[str] = ""
    gives: ClassVar[str]

    def setup_io(self, io: IoSetup) -> None:
        """Declare the ports."""
        for port in self.takes.split():
            io.add_input(port)
        for port in self.gives.split():
            io.add_output(port)
