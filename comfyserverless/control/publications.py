"""Know what workers publish while they run, who reads it, and when nobody can any more.

A publication lives until its invocation has left its lane and so have all invocations that were started with a
reference to it: one that fails half way leaves tensors, which a reader may be copying at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from comfyserverless.control.results import Freed
from comfyserverless.core.ids import InvocationId, TensorId, WorkerId
from comfyserverless.core.messages import InvocationPublished
from comfyserverless.core.values import Output, PublishedRef


@dataclass(slots=True)
class _Publication:
    worker: WorkerId
    message: InvocationPublished
    is_over: bool = False
    #: all and only invocations in a lane that were started with a reference to it
    readers: set[InvocationId] = field(default_factory=set)


class PublicationTable:
    """Own the publications of all workers."""

    def __init__(self) -> None:
        #: all and only publications that are not freed
        self._all: dict[TensorId, _Publication] = {}
        #: those of invocations that run now, by invocation: a function with a callback output has no other
        self._current: dict[InvocationId, _Publication] = {}

    def __len__(self) -> int:
        return len(self._all)

    def open(self, worker: WorkerId, message: InvocationPublished) -> None:
        """Take note of a publication. Pre: its invocation is in a lane of the worker."""
        self._all[message.id] = self._current[message.invocation] = _Publication(worker, message)

    def find(self, output: Output) -> PublishedRef:
        """Return what stands for an output that is being made. Raises KeyError if it is not published."""
        message = self._current[output.invocation].message
        if message.port != output.port or output.path:
            raise KeyError(f"{output} has no result, and is not published")
        return PublishedRef(message.publication)

    def read(self, reader: InvocationId, producers: Iterable[InvocationId]) -> None:
        """Take note that an invocation was started with references to what these publish."""
        for producer in producers:
            if producer in self._current:
                self._current[producer].readers.add(reader)

    def is_reading(self, invocation: InvocationId) -> bool:
        """Tell whether an invocation in a lane was started with such a reference."""
        return any(invocation in publication.readers for publication in self._all.values())

    def leave(self, invocation: InvocationId) -> Freed:
        """Take note that an invocation left its lane; returns what nobody can read any more, by owner."""
        ended = self._current.pop(invocation, None)
        if ended is not None:
            ended.is_over = True
        freed: Freed = {}
        for key, publication in list(self._all.items()):
            publication.readers.discard(invocation)
            if publication.is_over and not publication.readers:
                del self._all[key]
                freed.setdefault(publication.worker, []).append(key)
        return freed
