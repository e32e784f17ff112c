"""Define what a worker tells of its memory: weights by layer, host tier, arena, and counts since its start.

Worker -> control with `messages.WorkerStats`, since link version 4; `MemoryPicture` is what operators see.
"""

from __future__ import annotations

import msgspec

LayerRuns = tuple[tuple[int, int], ...]
"""Layers as ascending runs [first, end)."""


class ModelMemory(msgspec.Struct, frozen=True):
    """One model that has layers in the device's memory, or is in use.

    name: of its file, without folders; kind: which model of the file (`unet`, `controlnet`, `text l`, `vae
    decoder`); variant: the LoRAs of private layers on top of a base, empty for the base itself. layers: how
    many it has, in execution order; resident: which of them are there; empty: those that have no weights at
    all. prefix: how many first layers are wanted in memory, to hide the load of the others. is_in_use: some run
    uses it now. Bytes are those of all layers, and of the resident ones.
    """

    name: str
    kind: str
    variant: str
    layers: int
    resident: LayerRuns
    empty: LayerRuns
    prefix: int
    is_in_use: bool
    total_bytes: int
    resident_bytes: int


class DeviceMemory(msgspec.Struct, frozen=True):
    """Weights on the device: what they may take, what they take, and what results claim of the budget."""

    budget_bytes: int = 0
    used_bytes: int = 0
    claimed_bytes: int = 0


class HostMemory(msgspec.Struct, frozen=True):
    """Weights that are kept in host memory on their way to the device."""

    budget_bytes: int = 0
    used_bytes: int = 0
    models: int = 0


class ArenaMemory(msgspec.Struct, frozen=True):
    """The worker's arena. blocks: live ones; largest_free_bytes: of the biggest block that fits now."""

    total_bytes: int = 0
    used_bytes: int = 0
    blocks: int = 0
    largest_free_bytes: int = 0


class MemoryCounters(msgspec.Struct, frozen=True):
    """Counts since the worker started.

    resident_layers: layers that a run wanted and found on the device; host_layers, disk_layers: those that were
    loaded from the host tier and from files; made_layers: those that were computed there (LoRAs). host_bytes,
    disk_bytes: what was loaded. evicted_layers: those that left for others. fetched_*: tensors read from other
    workers' arenas.
    """

    resident_layers: int = 0
    host_layers: int = 0
    disk_layers: int = 0
    made_layers: int = 0
    host_bytes: int = 0
    disk_bytes: int = 0
    evicted_layers: int = 0
    fetched_tensors: int = 0
    fetched_bytes: int = 0


class WeightsPicture(msgspec.Struct, frozen=True):
    """What a model pool tells. models: the most recently used first; more_models: how many were left out."""

    device: DeviceMemory
    host: HostMemory
    counters: MemoryCounters
    models: tuple[ModelMemory, ...] = ()
    more_models: int = 0


class MemoryPicture(msgspec.Struct, frozen=True):
    """The memory of one worker, as the last message told it.

    models: the most recently used first; None in a message: the same as in the one before. more_models: how
    many models with resident layers were left out. link_s: the latest round trip of the link, None before the
    first.
    """

    device: DeviceMemory
    host: HostMemory
    arena: ArenaMemory
    counters: MemoryCounters
    models: tuple[ModelMemory, ...] | None
    more_models: int
    link_s: float | None
