"""Be one worker: put its parts together and serve its link. Importing this module loads all model code."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import torch

from comfyserverless.core.errors import ConfigError
from comfyserverless.core.zygote import SpawnWorker, ZygoteOptions
from comfyserverless.dataplane.arena import LocalArena
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.functions.registry import FUNCTIONS
from comfyserverless.models.pool import ModelPool, PoolOptions
from comfyserverless.residency.policy import POLICIES
from comfyserverless.worker import device as devices
from comfyserverless.worker.arenas import open_arena
from comfyserverless.worker.environment import default_threads
from comfyserverless.worker.link import Link, LinkLost, dial
from comfyserverless.worker.session import Parts, Worker

log = logging.getLogger(__name__)

LINK_LOST_STATUS = 3


def run_worker(options: ZygoteOptions, request: SpawnWorker) -> int:
    """Run a worker in this process until the end; return the exit code."""
    torch.set_num_threads(request.threads or options.threads or default_threads())
    device = devices.choose_device(options.device, request.device_index)
    store: TensorStore | None = None
    try:
        with dial(request.link) as connection:
            link = Link(connection)
            pool, arena = open_memory(request, device, link)
            store = TensorStore(request.worker, arena)
            parts = Parts(
                worker=request.worker,
                token=request.token,
                device=device,
                functions=FUNCTIONS,
                arena=arena,
                store=store,
                pool=pool,
            )
            Worker(parts, link).serve()
    except LinkLost as exc:
        log.error("worker %s: %s", request.worker, exc)
        if store is not None:
            store.close()
        # At once: whatever still runs has nobody to answer to.
        os._exit(LINK_LOST_STATUS)
    finally:
        if store is not None:
            store.close()
    return 0


def open_memory(request: SpawnWorker, device: torch.device, link: Link) -> tuple[ModelPool, LocalArena]:
    """Return the worker's models and its arena, which takes its place in the device's memory first.

    Raises what `open_arena` raises, and ConfigError.
    """
    options = _pool_options(request, device)
    arena = open_arena(request, device, link, options.device_bytes)
    pool = ModelPool(device, options)
    pool.claim(arena.device_bytes)
    return pool, arena


def _pool_options(request: SpawnWorker, device: torch.device) -> PoolOptions:
    if request.resident not in POLICIES:
        raise ConfigError(f"resident is {request.resident!r}; allowed: {', '.join(POLICIES)}")
    return PoolOptions(
        device_bytes=request.weights_bytes or devices.default_weights_bytes(device),
        host_bytes=request.host_bytes,
        policy=request.resident,
        profiles_folder=Path(request.profiles_path) if request.profiles_path else None,
    )
