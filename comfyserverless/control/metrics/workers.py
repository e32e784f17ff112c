"""Turn the views of worker slots into metrics; counters of a worker begin anew with each of its processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from comfyserverless.control.views import RecoveryView, WorkerView
from comfyserverless.core.memory import MemoryPicture

_P = "comfyserverless_"


def worker_families(views: Sequence[WorkerView]) -> Iterable[Metric]:
    """Describe all slots, by name of the slot."""
    up = GaugeMetricFamily(f"{_P}worker_up", "1 while the slot has a worker that takes work", labels=["worker"])
    restarts = CounterMetricFamily(f"{_P}worker_restarts", "Workers that replaced another", labels=["worker"])
    running = GaugeMetricFamily(
        f"{_P}worker_running_invocations", "Invocations in the worker's lanes", labels=["worker"]
    )
    process = GaugeMetricFamily(
        f"{_P}worker_resident_memory_bytes", "Resident set of the worker's process", labels=["worker"]
    )
    free = GaugeMetricFamily(f"{_P}device_free_bytes", "Free memory of the device", labels=["worker"])
    for view in views:
        slot = [view.slot]
        up.add_metric(slot, view.state in ("ready", "busy"))
        restarts.add_metric(slot, view.restarts)
        running.add_metric(slot, len(view.running))
        if view.resident_bytes:
            process.add_metric(slot, view.resident_bytes)
            free.add_metric(slot, view.device_free_bytes)
    pictures = [(view.slot, view.memory) for view in views if view.memory is not None]
    return [up, restarts, running, process, free, *_memory_gauges(pictures), *_memory_counters(pictures)]


def _memory_gauges(pictures: Sequence[tuple[str, MemoryPicture]]) -> Iterable[Metric]:
    link = GaugeMetricFamily(
        f"{_P}link_round_trip_seconds", "Latest round trip of the worker's link", labels=["worker"]
    )
    arena = GaugeMetricFamily(
        f"{_P}arena_bytes", "The worker's arena: bytes in live blocks, and in all", labels=["worker", "kind"]
    )
    blocks = GaugeMetricFamily(f"{_P}arena_blocks", "Live blocks of the arena", labels=["worker"])
    weights = GaugeMetricFamily(
        f"{_P}weights_bytes",
        "Weights in memory, and what they may take, on the device and on the host",
        labels=["worker", "place", "kind"],
    )
    for slot, memory in pictures:
        if memory.link_s is not None:
            link.add_metric([slot], memory.link_s)
        arena.add_metric([slot, "used"], memory.arena.used_bytes)
        arena.add_metric([slot, "total"], memory.arena.total_bytes)
        blocks.add_metric([slot], memory.arena.blocks)
        for place, tier in (("device", memory.device), ("host", memory.host)):
            weights.add_metric([slot, place, "used"], tier.used_bytes)
            weights.add_metric([slot, place, "budget"], tier.budget_bytes)
    return [link, arena, blocks, weights]


def _memory_counters(pictures: Sequence[tuple[str, MemoryPicture]]) -> Iterable[Metric]:
    layers = CounterMetricFamily(
        f"{_P}weight_layers",
        "Layers that runs wanted: resident on the device, loaded from host or disk, or made there (LoRAs)",
        labels=["worker", "tier"],
    )
    loaded = CounterMetricFamily(
        f"{_P}weight_loaded_bytes", "Bytes of layers that were loaded", labels=["worker", "tier"]
    )
    evicted = CounterMetricFamily(
        f"{_P}weight_evicted_layers", "Layers that left the device for others", labels=["worker"]
    )
    fetched = CounterMetricFamily(
        f"{_P}fetched_tensors", "Tensors read from other workers' arenas", labels=["worker"]
    )
    fetched_bytes = CounterMetricFamily(
        f"{_P}fetched_bytes", "Bytes of tensors read from other workers' arenas", labels=["worker"]
    )
    for slot, memory in pictures:
        counters = memory.counters
        layers.add_metric([slot, "resident"], counters.resident_layers)
        layers.add_metric([slot, "host"], counters.host_layers)
        layers.add_metric([slot, "disk"], counters.disk_layers)
        layers.add_metric([slot, "made"], counters.made_layers)
        loaded.add_metric([slot, "host"], counters.host_bytes)
        loaded.add_metric([slot, "disk"], counters.disk_bytes)
        evicted.add_metric([slot], counters.evicted_layers)
        fetched.add_metric([slot], counters.fetched_tensors)
        fetched_bytes.add_metric([slot], counters.fetched_bytes)
    return [layers, loaded, evicted, fetched, fetched_bytes]


def recovery_families(view: RecoveryView) -> Iterable[Metric]:
    """Describe what losses of workers have cost."""
    return [
        CounterMetricFamily(f"{_P}workers_lost", "Workers that were lost", value=view.workers_lost),
        CounterMetricFamily(f"{_P}steps_rerun", "Steps that were taken again", value=view.steps_rerun),
        CounterMetricFamily(f"{_P}walks_restored", "Walks that went on from a checkpoint", value=view.restored),
        GaugeMetricFamily(f"{_P}checkpoint_bytes", "Checkpoints that are kept", value=view.checkpoint_bytes),
    ]
