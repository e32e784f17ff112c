"""Describe worker slots to operators, from what is known of the process and what its worker said last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from comfyserverless.control.views import WorkerView
from comfyserverless.control.workers.processes import Slot
from comfyserverless.core import messages as wire
from comfyserverless.core.ids import InvocationId
from comfyserverless.core.memory import ModelMemory


@dataclass(slots=True)
class Joined:
    """What a joined worker said last. models: of its latest picture, which says only what has changed."""

    hello: wire.Hello
    stats: wire.WorkerStats | None
    heard_at_s: float
    models: tuple[ModelMemory, ...] = ()

    def note(self, stats: wire.WorkerStats) -> None:
        """Take the latest figures."""
        if stats.memory is not None:
            if stats.memory.models is not None:
                self.models = stats.memory.models
            stats = msgspec.structs.replace(
                stats, memory=msgspec.structs.replace(stats.memory, models=self.models)
            )
        self.stats = stats


def describe(slot: Slot, joined: Joined | None, running: Sequence[InvocationId]) -> WorkerView:
    """Return the view of a slot; joined: None if no worker of it has a link now."""
    empty = WorkerView(
        slot=slot.name,
        worker=slot.worker,
        pid=slot.pid,
        state="starting" if slot.starts <= 1 else "lost",
        restarts=max(0, slot.starts - 1),
        device_name="",
        device_kind="cpu",
        device_index=slot.device_index,
        device_total_bytes=0,
        device_free_bytes=0,
        resident_bytes=0,
        arena_used_bytes=0,
        arena_bytes=0,
        weights_bytes=0,
        running=(),
        torch_version="",
    )
    if joined is None:
        return empty
    hello, stats = joined.hello, joined.stats
    view = replace(
        empty,
        state="busy" if running else "ready",
        pid=hello.pid,
        device_name=hello.device.name,
        device_kind=hello.device.kind,
        device_index=hello.device.index,
        device_total_bytes=hello.device.total_bytes,
        device_free_bytes=stats.device_free_bytes if stats else hello.device.free_bytes,
        arena_bytes=hello.arena_bytes,
        running=tuple(running),
        torch_version=hello.torch_version,
    )
    if stats is None:
        return view
    return replace(
        view,
        resident_bytes=stats.resident_bytes,
        arena_used_bytes=stats.arena_used_bytes,
        weights_bytes=stats.weights_bytes,
        memory=stats.memory,
    )
