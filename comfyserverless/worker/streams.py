"""Let a function's callback inputs arrive, and its callback outputs leave, one element at a time.

A producer's elements are values in its arena, told by a publication (dataplane.publication): first the
lengths of its lists by key, then a record [key, index, value] for each. A consumer reads records until it has
the one that it was asked for, so producers choose their order. Waits end at once when this invocation is
cancelled, or the producer is.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from comfyserverless.core import values
from comfyserverless.core.errors import WorkerError
from comfyserverless.core.ids import TensorId
from comfyserverless.core.messages import InvocationPublished, RunInvocation
from comfyserverless.core.values import PublishedRef, Value
from comfyserverless.dataplane.publication import Guard, PublicationRef, Subscription
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.sdk.modelfn import Streamed

Announce = Callable[[InvocationPublished], None]


class Cancelled(BaseException):
    """This invocation was cancelled while it waited, or between two elements; no function catches it."""


class Streams:
    """Know the tensors that ended publications leave behind, until nobody can read them any more."""

    def __init__(self, store: TensorStore, announce: Announce) -> None:
        self.store = store
        self.announce = announce
        self._lock = threading.Lock()
        #: by publication: tensors that no result mentions, since their invocation was not done
        self._left: dict[TensorId, list[TensorId]] = {}

    def leave(self, publication: TensorId, tensors: list[TensorId]) -> None:
        """Free tensors with a publication."""
        with self._lock:
            self._left[publication] = tensors

    def free(self, tensors: Sequence[TensorId]) -> None:
        """Free tensors and publications by their ids, and what belongs to these."""
        with self._lock:
            left = [each for tensor in tensors for each in self._left.pop(tensor, ())]
        self.store.free([*tensors, *left])


class RunStreams:
    """The streams of one invocation. check: raises Cancelled once it is cancelled.

    waited_s, fetched_s: how long its thread waited for elements, and copied them, inside of computing.
    """

    def __init__(self, streams: Streams, run: RunInvocation, check: Guard) -> None:
        self._streams = streams
        self._run = run
        self._check = check
        #: by publication: the tensors that were made for it
        self._made: dict[TensorId, list[TensorId]] = {}
        self.waited_s = 0.0
        self.fetched_s = 0.0

    def open(self, inputs: Value) -> Value:
        """Return an input tree with every PublishedRef replaced by what will come."""

        def leaf(item: Value) -> Value:
            if type(item) is not PublishedRef:
                return item
            ref = PublicationRef.decode(item.data)
            return Incoming(self, self._streams.store.subscribe(ref, self._check))

        return values.transform(inputs, leaf)

    def make(self, outputs: Mapping[str, Any], inputs: Value) -> dict[str, Any]:
        """Return outputs with everything that is streamed made, and published if that is asked for.

        inputs: refs and literals, as they came. Raises Cancelled, and what making an element raises.
        """
        taken = {ref.id for ref in values.tensor_refs(inputs)}
        return {
            port: self._make(port, value, taken) if isinstance(value, Streamed) else value
            for port, value in outputs.items()
        }

    def abandon(self) -> None:
        """Say that the invocation is not done: what was published for it goes with its publication."""
        for publication, tensors in self._made.items():
            self._streams.leave(publication, tensors)

    def read(self, subscription: Subscription, index: int) -> Value:
        """Wait for a record of a publication. Raises WorkerError if it ends before, and Cancelled."""
        begin_s = time.perf_counter()
        try:
            return values.decode(subscription.element(index, math.inf))
        except IndexError as exc:
            raise WorkerError(f"the producer ended early: {exc}", "PublicationFailed") from exc
        finally:
            self.waited_s += time.perf_counter() - begin_s

    def fetch(self, value: Value) -> Value:
        """Return an element with its tensors."""
        element, seconds = self._streams.store.get_tree(value, on_host=self._run.lane == "cpu")
        self.fetched_s += seconds
        return element

    def _make(self, port: str, streamed: Streamed, taken: set[TensorId]) -> dict[str, list[Any]]:
        return self._publish(port, streamed, taken) if self._run.publishes else streamed.collect()

    def _publish(self, port: str, streamed: Streamed, taken: set[TensorId]) -> dict[str, list[Any]]:
        store = self._streams.store
        publication = store.publish(1 + sum(streamed.lengths.values()))
        made = self._made[publication.ref.id] = []
        try:
            publication.publish(values.encode(dict(streamed.lengths)))
            self._streams.announce(
                InvocationPublished(self._run.invocation, port, publication.ref.id, publication.ref.encode())
            )
            lists: dict[str, list[Any]] = {key: [None] * n for key, n in streamed.lengths.items()}
            for key, index, element in streamed.elements:
                self._check()
                stored = store.put_tree(element)
                made += [ref.id for ref in values.tensor_refs(stored) if ref.id not in taken]
                publication.publish(values.encode([key, index, stored]))
                lists[key][index] = stored
        except BaseException as exc:
            publication.fail(str(exc) or type(exc).__name__)
            raise
        publication.finish()
        return lists


class Incoming(Mapping[str, Sequence[Any]]):
    """The lists that another invocation publishes, by key. For the lane's thread only."""

    def __init__(self, streams: RunStreams, subscription: Subscription) -> None:
        self._streams = streams
        self._subscription = subscription
        self._lengths: dict[str, int] | None = None
        self._seen = 0
        #: records that were read, and those of them that were fetched
        self._records: dict[tuple[str, int], Value] = {}
        self._fetched: dict[tuple[str, int], Any] = {}

    def __getitem__(self, key: str) -> Sequence[Any]:
        return IncomingList(self, key, self.lengths()[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self.lengths())

    def __len__(self) -> int:
        return len(self.lengths())

    def lengths(self) -> dict[str, int]:
        """Return the length of each list; they are published first."""
        if self._lengths is None:
            self._lengths = self._streams.read(self._subscription, 0)
        return self._lengths

    def element(self, key: str, index: int) -> Any:
        """Wait for an element and return it. Raises what `RunStreams.read` raises."""
        place = key, index
        while place not in self._records:
            self._seen += 1
            at_key, at_index, value = self._streams.read(self._subscription, self._seen)
            self._records[at_key, at_index] = value
        if place not in self._fetched:
            self._fetched[place] = self._streams.fetch(self._records[place])
        return self._fetched[place]


class IncomingList(Sequence[Any]):
    """One list of an `Incoming`: reading an element waits for it."""

    def __init__(self, incoming: Incoming, key: str, length: int) -> None:
        self._incoming = incoming
        self._key = key
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(self._length))]
        at = index + self._length if index < 0 else index
        if not 0 <= at < self._length:
            raise IndexError(f"a list of {self._length} elements has none at {index}")
        return self._incoming.element(self._key, at)
