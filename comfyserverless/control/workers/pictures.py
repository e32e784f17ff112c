"""Hold back the report of a result until the picture that shows it has come, so that steps are told in order.

Only the report waits, and not for long: whoever needs the result itself has it at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from comfyserverless.core.errors import WorkerError
from comfyserverless.core.ids import InvocationId, WorkerId
from comfyserverless.core.messages import InvocationDone
from comfyserverless.core.values import Value

PREVIEW_PORT = "preview"
"""The output that a picture is given out as."""

WAITS_S = 10.0
"""For how long a report waits: a picture that takes longer is not worth it."""

Observer = Callable[[Mapping[str, Value], WorkerError | None], None]
"""Told once per invocation, when it first finishes (its outputs, None) or fails (no outputs, why)."""


class PictureDesk:
    """Know which results wait for their pictures."""

    def __init__(self) -> None:
        #: all and only invocations that are done and whose picture is on its way, but those nobody is told of
        self._held: dict[InvocationId, _Report] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, worker: WorkerId, done: InvocationDone, observer: Observer | None) -> Observer | None:
        """Return who is to be told of a result: the observer, or this desk if a picture will follow."""
        if observer is None or not done.shows:
            return observer
        given_up = asyncio.get_running_loop().call_later(WAITS_S, self.arrived, done.invocation, b"")
        report = self._held[done.invocation] = _Report(worker, observer, given_up)
        return report.told

    def arrived(self, invocation: InvocationId, image: bytes) -> None:
        """Tell of a result together with its picture; empty: there is none.

        Earlier results of the same node that still wait, for pictures of other workers, are told before.
        """
        if invocation not in self._held:
            return
        node = invocation.rpartition("/")[0]
        for other in list(self._held):
            if other == invocation:
                break
            if other.rpartition("/")[0] == node:
                self._held.pop(other).shown(None)
        self._held.pop(invocation).shown(image or None)

    def worker_lost(self, worker: WorkerId) -> None:
        """Tell of results whose pictures will not come any more."""
        for invocation in [each for each, report in self._held.items() if report.worker == worker]:
            self._held.pop(invocation).shown(None)


class _Report:
    """One report: it goes out when both the outputs and the picture are there.

    given_up: the timer that goes off if no picture comes.
    """

    def __init__(self, worker: WorkerId, observer: Observer, given_up: asyncio.TimerHandle) -> None:
        self.worker = worker
        self._observer = observer
        self._given_up = given_up
        self._outputs: Mapping[str, Value] | None = None
        self._image: bytes | None = None
        self._is_shown = False

    def told(self, outputs: Mapping[str, Value], error: WorkerError | None) -> None:
        self._outputs = outputs
        if self._is_shown or error is not None:
            self._observer({**outputs, PREVIEW_PORT: self._image}, error)

    def shown(self, image: bytes | None) -> None:
        self._given_up.cancel()
        self._image, self._is_shown = image, True
        if self._outputs is not None:
            self._observer({**self._outputs, PREVIEW_PORT: image}, None)
