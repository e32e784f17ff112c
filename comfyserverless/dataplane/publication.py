"""Publish the elements of a result one by one, so that a consumer may start before its producer is done.

The producer makes a `Publication` with room for a number of elements, lets its `PublicationRef` be told to
consumers, and publishes each element when it has it. An element is a few bytes, such as an encoded value
tree whose tensors are in the producer's arena. The consumer makes a `Subscription` of the ref; asking it for an
element waits for that element only. Both use nothing but the arena: no message, no third process.

The only word that both sides touch is a flag: the number of published elements, plus `_FINISHED` or `_FAILED`
once there will be no more. It only grows. A wait is a series of short ones; in between, a guard may raise
(the consumer was cancelled) and the owner of the arena is looked at, so that the death of a producer never
hangs a waiter.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from comfyserverless.core.errors import WorkerError
from comfyserverless.core.ids import TensorId, WorkerId
from comfyserverless.dataplane.arena import LocalArena, PeerArena

SLICE_S = 0.05
"""How long a cancelled waiter, or one whose producer died, may take to notice."""

_FINISHED = 1 << 30
_FAILED = 1 << 31
_COUNT = _FINISHED - 1
_LENGTH_BYTES = 4

Guard = Callable[[], None]
"""Called while waiting; raises what shall end the wait."""


def no_guard() -> None:
    """Let a wait go on."""


def wait(peer: PeerArena, flag_bytes: int, value: int, timeout_s: float, guard: Guard = no_guard) -> int:
    """Wait until a flag is at least `value`; return what it is then.

    Raises TimeoutError after timeout_s, WorkerError (LostTensor) if the owner is gone or the arena was closed,
    and what `guard` raises.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        left_s = deadline_s - time.monotonic()
        try:
            if peer.wait_flag(flag_bytes, value, max(min(left_s, SLICE_S), 0.0)):
                return peer.load_flag(flag_bytes)
        except ValueError as exc:
            raise _lost(peer) from exc
        guard()
        if not peer.is_owner_alive():
            # It may have published, and ended in order, since we looked: what it wrote can still be read.
            seen = peer.load_flag(flag_bytes) if peer.wait_flag(flag_bytes, value, 0.0) else 0
            if seen >= value:
                return seen
            raise _lost(peer)
        if left_s <= SLICE_S:
            raise TimeoutError(f"no element within {timeout_s:g} s from {peer.path}")


def _lost(peer: PeerArena) -> WorkerError:
    return WorkerError(f"the producer of a published result is gone ({peer.path})", "LostTensor")


class PublicationRef(msgspec.Struct, frozen=True):
    """Point at a publication; travels in messages (`encode`, `decode`).

    id: frees it, like a tensor's; offset_bytes: of its slots in the worker's arena, `elements` of slot_bytes
    each and one more for the reason of a failure; flag_bytes: offset of its flag.
    """

    id: TensorId
    worker: WorkerId
    offset_bytes: int
    flag_bytes: int
    elements: int
    slot_bytes: int

    def encode(self) -> bytes:
        """Return the wire form."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def decode(data: bytes) -> PublicationRef:
        """Read the wire form. Raises msgspec.DecodeError if it is none."""
        return msgspec.msgpack.decode(data, type=PublicationRef)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all slots."""
        return (self.elements + 1) * self.slot_bytes


class Publication:
    """Be the producer. One thread at a time; `store.publish` makes it, and freeing its id ends it."""

    def __init__(self, arena: LocalArena, ref: PublicationRef) -> None:
        self._arena = arena
        self.ref = ref
        self._count = 0
        self._is_closed = False

    def publish(self, element: bytes) -> None:
        """Publish the next element; its readers see all that this worker wrote before.

        Raises ValueError if it is longer than a slot, IndexError after the last one, and RuntimeError after the
        end.
        """
        if self._is_closed:
            raise RuntimeError("the publication has ended")
        if self._count == self.ref.elements:
            raise IndexError(f"the publication has room for {self.ref.elements} elements only")
        self._fill(self._count, element)
        self._count += 1
        self._arena.publish(self.ref.flag_bytes, self._count)

    def finish(self) -> None:
        """Say that there are no more elements; repeating it changes nothing."""
        self._close(_FINISHED)

    def fail(self, reason: str) -> None:
        """Say that there will be no more because the producer failed; after the end it changes nothing."""
        if not self._is_closed:
            room_bytes = self.ref.slot_bytes - _LENGTH_BYTES
            self._fill(self.ref.elements, reason.encode()[:room_bytes])
            self._close(_FAILED)

    def _close(self, end: int) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._arena.publish(self.ref.flag_bytes, end | self._count)

    def _fill(self, slot: int, data: bytes) -> None:
        if len(data) > self.ref.slot_bytes - _LENGTH_BYTES:
            raise ValueError(f"an element of {len(data)} bytes does not fit a slot of {self.ref.slot_bytes}")
        record = len(data).to_bytes(_LENGTH_BYTES, "little") + data
        self._arena.write(self.ref.offset_bytes + slot * self.ref.slot_bytes, record)


class Subscription:
    """Be a consumer; any number may subscribe, and any thread may ask."""

    def __init__(self, peer: PeerArena, ref: PublicationRef, guard: Guard = no_guard) -> None:
        self._peer = peer
        self._ref = ref
        self._guard = guard

    def published(self) -> int:
        """Return how many elements there are now. Raises WorkerError if the producer's arena was closed."""
        try:
            return self._peer.load_flag(self._ref.flag_bytes) & _COUNT
        except ValueError as exc:
            raise _lost(self._peer) from exc

    def element(self, index: int, timeout_s: float) -> bytes:
        """Wait for an element and return it.

        Raises IndexError if the publication ends before it or cannot hold it, WorkerError if the producer fails
        (with its reason) or is gone, TimeoutError, and what the guard raises.
        """
        if not 0 <= index < self._ref.elements:
            raise IndexError(f"a publication of {self._ref.elements} elements has none at {index}")
        state = wait(self._peer, self._ref.flag_bytes, index + 1, timeout_s, self._guard)
        count = state & _COUNT
        if index < count:
            return self._slot(index)
        if state & _FAILED:
            reason = self._slot(self._ref.elements).decode("utf-8", "replace")
            raise WorkerError(f"the producer failed: {reason}", "PublicationFailed")
        raise IndexError(f"the publication ended after {count} elements")

    def _slot(self, index: int) -> bytes:
        offset_bytes = self._ref.offset_bytes + index * self._ref.slot_bytes
        try:
            record = self._peer.read(offset_bytes, self._ref.slot_bytes)
        except ValueError as exc:
            raise _lost(self._peer) from exc
        length_bytes = int.from_bytes(record[:_LENGTH_BYTES], "little")
        return record[_LENGTH_BYTES : _LENGTH_BYTES + length_bytes]
