"""Keep a worker's tensors in its arena and fetch those of its peers.

A tensor is put once and never written again. Readers get views, not copies. A block is reused only when the
control process has freed its tensor *and* no view of it is left in this process: views announce their
own end through weak references, so code may keep a tensor as long as it likes.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from comfyserverless.core.errors import WorkerError
from comfyserverless.core.ids import TensorId, WorkerId
from comfyserverless.core.memory import ArenaMemory
from comfyserverless.core.values import HANDLE_TYPES, TensorRef, Value, transform
from comfyserverless.dataplane.arena import Block, LocalArena, PeerArena
from comfyserverless.dataplane.dtypes import dtype_name, dtype_of
from comfyserverless.dataplane.publication import Guard, Publication, PublicationRef, Subscription, no_guard

SLOT_BYTES = 1024
"""Room of one published element: an encoded value tree with some refs (a ref takes about 120 bytes)."""

_PLAIN_TYPES = (type(None), bool, int, float, str, bytes)


@dataclass(slots=True)
class _Entry:
    """One tensor of our own. views: arrays handed out and not yet collected; freed: nobody may ask again."""

    ref: TensorRef
    address: int
    views: int = 0
    freed: bool = False


class TensorStore:
    """Own the tensors of one worker. All methods may be called from any thread.

    Views are writable because torch has no read-only tensors: functions must not modify their inputs.
    """

    def __init__(self, worker: WorkerId, arena: LocalArena) -> None:
        self._worker = worker
        self._arena = arena
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        #: all and only own tensors whose block is taken: live ones, and freed ones that are still viewed
        self._entries: dict[TensorId, _Entry] = {}
        #: all and only live (not freed) entries with bytes, by the address of their block
        self._by_address: dict[int, _Entry] = {}
        #: ids of views that were collected; appended by finalizers, which must not take the lock
        self._ended_views: deque[TensorId] = deque()
        #: all and only live publications of our own
        self._publications: dict[TensorId, PublicationRef] = {}
        #: offsets of blocks that fetched tensors no longer need; appended like the ids of ended views
        self._ended_landings: deque[int] = deque()
        self._peers: dict[WorkerId, PeerArena] = {}
        #: all and only fetched tensors that are still in use in this process
        self._fetched: weakref.WeakValueDictionary[TensorId, Any] = weakref.WeakValueDictionary()
        self._fetched_tensors = self._fetched_bytes = 0

    @property
    def used_bytes(self) -> int:
        """Return the bytes of the arena that are taken."""
        with self._lock:
            self._collect()
            return self._arena.used_bytes

    @property
    def total_bytes(self) -> int:
        """Return the size of the arena in bytes."""
        return self._arena.size_bytes

    def usage(self) -> ArenaMemory:
        """Tell how full the arena is."""
        with self._lock:
            self._collect()
            arena = self._arena
            return ArenaMemory(arena.size_bytes, arena.used_bytes, arena.live_blocks, arena.largest_free_bytes)

    @property
    def fetched(self) -> tuple[int, int]:
        """Return how many tensors were read from other workers' arenas so far, and their bytes."""
        return self._fetched_tensors, self._fetched_bytes

    def put(self, tensor: torch.Tensor) -> TensorRef:
        """Copy a tensor into the arena and return its ref.

        tensor: any shape, dtype and device; it is unchanged. A tensor that views a live tensor of this store
        as a whole costs nothing and gives that tensor's ref. Raises CapacityError if the arena is full.
        """
        return self._known(tensor) or self._put_new(tensor.detach())

    def _put_new(self, tensor: torch.Tensor) -> TensorRef:
        size_bytes = tensor.numel() * tensor.element_size()
        name = dtype_name(tensor.dtype)
        if size_bytes == 0:
            return self._register(TensorRef(self._next_id(), tuple(tensor.shape), name, 0, self._worker, 0), 0)
        offset_bytes = self._allocate(size_bytes)
        flat = self._arena.tensor(self._arena.view(offset_bytes, size_bytes))
        try:
            flat.view(tensor.dtype).view(tensor.shape).copy_(tensor)
            self._arena.flush()
        except BaseException:
            with self._lock:
                self._arena.release(offset_bytes)
            raise
        ref = TensorRef(self._next_id(), tuple(tensor.shape), name, size_bytes, self._worker, offset_bytes)
        return self._register(ref, flat.data_ptr())

    def get(self, ref: TensorRef) -> torch.Tensor:
        """Return the tensor: a view if it is our own, a local copy if a peer's (shared while it is in use).

        Raises WorkerError if it is unknown, was freed, or its owner's arena is not mapped.
        """
        if ref.size_bytes == 0:
            return torch.empty(ref.shape, dtype=dtype_of(ref.dtype), device=self._arena.device)
        block = self._view_own(ref) if ref.worker == self._worker else self._fetch(ref)
        return self._arena.tensor(block).view(dtype_of(ref.dtype)).view(ref.shape)

    def put_tree(self, value: Value) -> Value:
        """Return a function's result with every tensor replaced by its ref, and tuples by lists.

        Raises CapacityError like `put`, and TypeError for what is no value; the tensors that were put before
        are then freed again.
        """
        made: list[TensorId] = []

        def leaf(item: Value) -> Value:
            if not isinstance(item, torch.Tensor):
                return _checked(item)
            ref = self._known(item)
            if ref is None:
                ref = self._put_new(item.detach())
                made.append(ref.id)
            return ref

        try:
            return transform(_listed(value), leaf)
        except BaseException:
            self.free(made)
            raise

    def get_tree(self, value: Value, *, on_host: bool = False) -> tuple[Value, float]:
        """Return a value tree with every ref replaced by its tensor, and the seconds that fetching took.

        on_host: give tensors in host memory, wherever the arena is.
        """
        start_s = time.perf_counter()

        def leaf(item: Value) -> Value:
            if type(item) is not TensorRef:
                return item
            return self.get(item).cpu() if on_host else self.get(item)

        return transform(value, leaf), time.perf_counter() - start_s

    def free(self, tensors: Iterable[TensorId]) -> None:
        """Forget tensors; the block of one that is still viewed here is reused only after its last view.

        Unknown ids are ignored.
        """
        with self._lock:
            self._collect()
            for tensor in tensors:
                self._free_publication(tensor)
                entry = self._entries.get(tensor)
                if entry is None or entry.freed:
                    continue
                entry.freed = True
                self._by_address.pop(entry.address, None)
                self._release_if_unused(entry)

    def trim(self) -> None:
        """Give memory of the arena back to the system that was idle since the last call."""
        with self._lock:
            self._collect()
            self._arena.trim()

    def publish(self, elements: int, slot_bytes: int = SLOT_BYTES) -> Publication:
        """Return a new publication with room for so many elements; `free` its id when nobody asks any more.

        Raises CapacityError if the arena is full.
        """
        with self._lock:
            self._collect()
            flag_bytes = self._arena.allocate_flag()
            try:
                offset_bytes = self._arena.allocate((elements + 1) * slot_bytes)
            except BaseException:
                self._arena.release_flag(flag_bytes)
                raise
            ref = PublicationRef(self._next_id(), self._worker, offset_bytes, flag_bytes, elements, slot_bytes)
            self._publications[ref.id] = ref
        return Publication(self._arena, ref)

    def subscribe(self, ref: PublicationRef, guard: Guard = no_guard) -> Subscription:
        """Return the consumer's end of a publication, a peer's or our own.

        Raises WorkerError if its owner's arena is not mapped.
        """
        return Subscription(self._peer(ref.worker, ref.id), ref, guard)

    def add_peer(self, worker: WorkerId, path: str) -> None:
        """Map a peer's arena. Raises OSError if it is gone, or cannot be reached from here."""
        peer = self._arena.attach(path)
        self.remove_peer(worker)
        with self._lock:
            self._peers[worker] = peer

    def remove_peer(self, worker: WorkerId) -> None:
        """Unmap a peer's arena, if it is mapped; tensors that were fetched from it stay valid."""
        with self._lock:
            peer = self._peers.pop(worker, None)
        if peer is not None:
            peer.close()

    def note_peer_gone(self, worker: WorkerId) -> None:
        """End all waits for elements of a worker that is gone; what it published can still be read."""
        with self._lock:
            peer = self._peers.get(worker)
        if peer is not None:
            peer.note_owner_gone()

    def close(self) -> None:
        """Let all peers go, and give up the arena."""
        for worker in list(self._peers):
            self.remove_peer(worker)
        self._arena.close()

    def _next_id(self) -> TensorId:
        return TensorId(f"{self._worker}:{next(self._numbers)}")

    def _peer(self, worker: WorkerId, tensor: TensorId) -> PeerArena:
        """Return a mapped arena; our own one is mapped when it is first asked for."""
        peer = self._peers.get(worker)
        if peer is None and worker == self._worker:
            peer = self._peers.setdefault(worker, self._arena.attach(self._arena.path))
        if peer is None:
            raise WorkerError(f"arena of worker {worker} is not mapped: {tensor} is lost", "LostTensor")
        return peer

    def _known(self, tensor: torch.Tensor) -> TensorRef | None:
        """Return the ref whose block a tensor views as a whole, if it is still live."""
        if (
            tensor.device != self._arena.device
            or not tensor.is_contiguous()
            or tensor.is_conj()
            or tensor.is_neg()
        ):
            return None
        entry = self._by_address.get(tensor.data_ptr())
        if entry is None or tuple(tensor.shape) != entry.ref.shape:
            return None
        return entry.ref if dtype_name(tensor.dtype) == entry.ref.dtype and not entry.freed else None

    def _allocate(self, size_bytes: int) -> int:
        with self._lock:
            self._collect()
            return self._arena.allocate(size_bytes)

    def _register(self, ref: TensorRef, address: int) -> TensorRef:
        entry = _Entry(ref, address)
        with self._lock:
            self._entries[ref.id] = entry
            if ref.size_bytes:
                self._by_address[address] = entry
        return ref

    def _view_own(self, ref: TensorRef) -> Block:
        with self._lock:
            entry = self._entries.get(ref.id)
            if entry is None or entry.freed:
                raise WorkerError(f"tensor {ref.id} is not in this worker's arena", "LostTensor")
            entry.views += 1
        # A new array per call: torch's storage holds it, so its end is the end of every tensor made of it.
        block = self._arena.view(ref.offset_bytes, ref.size_bytes)
        weakref.finalize(block, self._ended_views.append, ref.id).atexit = False
        return block

    def _fetch(self, ref: TensorRef) -> Block:
        block: Block | None = self._fetched.get(ref.id)
        if block is not None:
            return block
        peer = self._peer(ref.worker, ref.id)
        block = self._landing(ref.size_bytes)
        try:
            peer.read_into(block, ref.offset_bytes, ref.size_bytes)
        except ValueError as exc:
            raise WorkerError(
                f"arena of worker {ref.worker} went away: {ref.id} is lost", "LostTensor"
            ) from exc
        self._fetched[ref.id] = block
        with self._lock:
            self._fetched_tensors += 1
            self._fetched_bytes += ref.size_bytes
        return block

    def _landing(self, size_bytes: int) -> Block:
        """Return memory that a peer's tensor can be read into."""
        if not self._arena.reads_into_arena:
            # torch aligns to a cache line, numpy does not; kernels then give the same bits as for a view.
            return torch.empty(size_bytes, dtype=torch.uint8).numpy()
        offset_bytes = self._allocate(size_bytes)
        block = self._arena.view(offset_bytes, size_bytes)
        weakref.finalize(block, self._ended_landings.append, offset_bytes).atexit = False
        return block

    def _free_publication(self, tensor: TensorId) -> None:
        """Give back what a publication of this id takes, if there is one; the lock is held."""
        ref = self._publications.pop(tensor, None)
        if ref is not None:
            self._arena.release(ref.offset_bytes)
            self._arena.release_flag(ref.flag_bytes)

    def _collect(self) -> None:
        """Count down the views that ended, and reuse the blocks of fetched tensors; the lock is held."""
        while self._ended_landings:
            self._arena.release(self._ended_landings.popleft())
        while self._ended_views:
            entry = self._entries[self._ended_views.popleft()]
            entry.views -= 1
            self._release_if_unused(entry)

    def _release_if_unused(self, entry: _Entry) -> None:
        if entry.freed and entry.views == 0:
            del self._entries[entry.ref.id]
            if entry.ref.size_bytes:
                self._arena.release(entry.ref.offset_bytes)


def _listed(value: Value) -> Value:
    """Turn the tuples of a function's result into lists, the value tree's only sequence."""
    if isinstance(value, list | tuple):
        return [_listed(item) for item in value]
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return value


def _checked(leaf: Value) -> Value:
    if type(leaf) in _PLAIN_TYPES or isinstance(leaf, HANDLE_TYPES):
        return leaf
    raise TypeError(f"a {type(leaf).__module__}.{type(leaf).__qualname__} is no value that can leave a worker")
