"""Make pictures that show results on one thread beside the lanes, which go on once a result is stored.

Each gets its message, in the order of the results. While results come faster than pictures can be made, those
that several newer ones of the same node wait behind stay empty.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

import torch

from comfyserverless.core.ids import InvocationId
from comfyserverless.core.messages import InvocationShown
from comfyserverless.sdk.modelfn import Later

log = logging.getLogger(__name__)

MOST_BEHIND = 2
"""How many newer pictures of its node may wait behind one that is made; a node may have to wait for so many
more at its end."""

_STOP_WITHIN_S = 5.0


class Pictures:
    """Own the thread. send: delivers a message."""

    def __init__(self, send: Callable[[InvocationShown], None]) -> None:
        self._send = send
        #: pictures of results that are not answered yet; only the lanes' threads use it, each its own keys
        self._prepared: dict[InvocationId, Later] = {}
        self._queue: SimpleQueue[tuple[InvocationId, Later] | None] = SimpleQueue()
        self._lock = threading.Lock()
        #: by node: how many pictures of it are queued; never 0
        self._waiting: dict[str, int] = {}
        self._is_stopped = False
        self._thread = threading.Thread(target=self._work, name="pictures", daemon=True)
        self._thread.start()

    def prepare(self, invocation: InvocationId, picture: Later) -> None:
        """Keep a picture until the result was answered."""
        self._prepared[invocation] = picture

    def start(self, invocation: InvocationId) -> None:
        """Queue the picture of an invocation whose answer went out; it may have none."""
        picture = self._prepared.pop(invocation, None)
        if picture is not None:
            self._count(_node_of(invocation), 1)
            self._queue.put((invocation, picture))

    def stop(self) -> None:
        """Make no further picture, and wait for the one that is being made, within bounds."""
        self._is_stopped = True
        self._queue.put(None)
        self._thread.join(_STOP_WITHIN_S)

    def _work(self) -> None:
        while (waiting := self._queue.get()) is not None:
            invocation, picture = waiting
            is_late = self._count(_node_of(invocation), -1) > MOST_BEHIND
            image = b"" if is_late or self._is_stopped else _make(picture)
            self._send(InvocationShown(invocation, image))

    def _count(self, node: str, change: int) -> int:
        """Count the pictures of a node that wait; returns how many there are now."""
        with self._lock:
            count = self._waiting.pop(node, 0) + change
            if count:
                self._waiting[node] = count
            return count


def _node_of(invocation: InvocationId) -> str:
    """Return what the names of a node's invocations in one run have in common."""
    return invocation.rpartition("/")[0]


def _make(picture: Later) -> bytes:
    try:
        with torch.inference_mode():
            return picture.make()
    except Exception:  # worker step: a picture that cannot be made is none, and fails nothing
        log.warning("a preview could not be made", exc_info=True)
        return b""
