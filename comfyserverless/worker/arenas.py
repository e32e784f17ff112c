"""Open the arena of a worker: in GPU memory if its whole island can, else in shared memory."""

from __future__ import annotations

import logging

import torch

from comfyserverless.core.config import LEAST_WEIGHTS_BYTES
from comfyserverless.core.messages import IslandReady, JoinIsland
from comfyserverless.core.zygote import SpawnWorker
from comfyserverless.dataplane.arena import LocalArena
from comfyserverless.dataplane.nvshmem_arena import NvshmemArena, Place
from comfyserverless.dataplane.nvshmem_library import NvshmemLibrary, NvshmemUnavailable, find_library
from comfyserverless.dataplane.shared_memory import SharedMemoryArena, choose_path
from comfyserverless.worker.link import Link, LinkLost

log = logging.getLogger(__name__)


def open_arena(
    request: SpawnWorker, device: torch.device, link: Link, budget_bytes: int | None = None
) -> LocalArena:
    """Return the worker's arena; the caller takes what that has of the device from the budget of weights.

    budget_bytes: of weights and a region in GPU memory together, None for no limit. Raises CapacityError if
    there is no room for it, LinkLost if the control process goes away meanwhile, and NvshmemUnavailable if GPU
    memory that was agreed on cannot be had: all then start again without it.
    """
    left_bytes = None if budget_bytes is None else budget_bytes - request.arena_bytes
    arena = _join_island(request, device, link, left_bytes) if request.island is not None else None
    if arena is not None:
        return arena
    path = choose_path(request.arena_path, request.arena_fallback_path, request.arena_bytes)
    return SharedMemoryArena(path, request.arena_bytes, populated=request.arena_populate)


def _join_island(
    request: SpawnWorker, device: torch.device, link: Link, left_bytes: int | None
) -> NvshmemArena | None:
    place = request.island
    assert place is not None
    library: NvshmemLibrary | None = None
    uid, problem = b"", ""
    try:
        library = find_library(device)
        _check_room(request.arena_bytes, left_bytes)
        uid = library.new_uid() if place.rank == 0 else b""
    except NvshmemUnavailable as exc:
        problem = str(exc)
    link.send(JoinIsland(request.worker, request.token, place, uid, problem))
    answer = next(iter(link.receive()))
    if not isinstance(answer, IslandReady):
        raise LinkLost(f"expected an answer about the island, got {type(answer).__name__}")
    if library is None or not answer.uid:
        reason = problem or answer.reason
        log.warning(
            "worker %s cannot keep results in GPU memory: %s; using shared memory", request.worker, reason
        )
        return None
    own = Place(place.name, place.rank, place.ranks)
    return NvshmemArena(library, own, answer.uid, request.arena_bytes)


def _check_room(arena_bytes: int, left_bytes: int | None) -> None:
    """Raise NvshmemUnavailable if results would leave too little of the device's memory to weights."""
    if left_bytes is not None and left_bytes < LEAST_WEIGHTS_BYTES:
        raise NvshmemUnavailable(
            f"{arena_bytes >> 20}M for results (--arena-memory) of the {arena_bytes + left_bytes >> 20}M that a"
            f" worker may use (--device-memory) leave less than {LEAST_WEIGHTS_BYTES >> 20}M to weights"
        )
