"""Describe which layers of which models are in memory, for people; bounded, however many models there are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from comfyserverless.core.memory import (
    DeviceMemory,
    HostMemory,
    LayerRuns,
    MemoryCounters,
    ModelMemory,
    WeightsPicture,
)
from comfyserverless.core.values import ClipRef, LoraRef, WeightChange
from comfyserverless.models.resident.keeper import Keeper
from comfyserverless.models.resident.run import ResidentModel
from comfyserverless.residency.table import ModelState

MOST_MODELS = 48
_NAME_CHARACTERS = 100
_NAMED_LORAS = 4


def draw_weights(keeper: Keeper) -> WeightsPicture:
    """Describe the weights of a keeper: models that have layers there or are in use, the latest used first.

    The keeper's lock is held only while states are copied.
    """
    table, found = keeper.look()
    models = [draw_model(model, state) for model, state in reversed(found)]
    shown = [model for model in models if model.resident_bytes or model.is_in_use]
    host, traffic = keeper.transfer.host, keeper.transfer.traffic
    counters = MemoryCounters(
        resident_layers=table.hit_layers,
        host_layers=traffic.host_layers,
        disk_layers=traffic.disk_layers,
        made_layers=traffic.made_layers,
        host_bytes=traffic.host_bytes,
        disk_bytes=traffic.disk_bytes,
        evicted_layers=table.evicted_layers,
    )
    return WeightsPicture(
        DeviceMemory(table.budget_bytes, table.total_bytes, table.claimed_bytes),
        HostMemory(host.budget_bytes, host.total_bytes, host.models),
        counters,
        tuple(shown[:MOST_MODELS]),
        max(0, len(shown) - MOST_MODELS),
    )


def draw_model(model: ResidentModel, state: ModelState) -> ModelMemory:
    """Describe one model from a copy of its state."""
    present, sizes_bytes = state.present(), state.sizes_bytes
    return ModelMemory(
        name=_file_name(model.group),
        kind=model.title.kind,
        variant=model.title.variant,
        layers=len(sizes_bytes),
        resident=runs_of(present),
        empty=runs_of(layer for layer, size in enumerate(sizes_bytes) if not size),
        prefix=state.prefix,
        is_in_use=state.is_active,
        total_bytes=sum(sizes_bytes),
        resident_bytes=sum(sizes_bytes[layer] for layer in present),
    )


def runs_of(layers: Iterable[int]) -> LayerRuns:
    """Join ascending numbers into runs [first, end)."""
    runs: list[tuple[int, int]] = []
    for layer in layers:
        if runs and runs[-1][1] == layer:
            runs[-1] = (runs[-1][0], layer + 1)
        else:
            runs.append((layer, layer + 1))
    return tuple(runs)


def variant_of(loras: Sequence[WeightChange]) -> str:
    """Name LoRAs by file and strength, and merges by file, as many as people read."""
    named = [_change_name(lora) for lora in loras[:_NAMED_LORAS]]
    more = [f"{len(loras) - _NAMED_LORAS} more"] if len(loras) > _NAMED_LORAS else []
    return ", ".join([*named, *more])


def _change_name(change: WeightChange) -> str:
    if isinstance(change, LoraRef):
        return f"{_file_name(change.file.path)} x {change.strength:g}"
    file = change.other.files[0] if isinstance(change.other, ClipRef) else change.other.file
    return f"merged with {_file_name(file.path)}"


def _file_name(path: str) -> str:
    """Return the last part of a path, as text that can be sent: its end, if it is long."""
    name = os.path.basename(path).encode("utf-8", "replace").decode()
    return name if len(name) <= _NAME_CHARACTERS else "…" + name[-_NAME_CHARACTERS + 1 :]
