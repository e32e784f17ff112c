"""Run one invocation: decode, load, fetch, execute, publish, store, write a checkpoint, answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from comfyserverless.core import values
from comfyserverless.core.errors import PromptError
from comfyserverless.core.ids import InvocationId, TensorId
from comfyserverless.core.memory import WeightsPicture
from comfyserverless.core.messages import (
    FromWorker,
    InvocationCancelled,
    InvocationDone,
    InvocationFailed,
    RunInvocation,
    Timing,
)
from comfyserverless.dataplane.checkpoint import read_checkpoint, write_checkpoint
from comfyserverless.dataplane.store import TensorStore
from comfyserverless.models.interruption import interruptible
from comfyserverless.sdk.modelfn import Later, ModelFn
from comfyserverless.worker.failures import format_frames, is_out_of_memory, type_name
from comfyserverless.worker.lanes import Ticket
from comfyserverless.worker.streams import Announce, Cancelled, RunStreams, Streams

log = logging.getLogger(__name__)


class WeightPool(Protocol):
    """What the worker itself needs of the model pool; functions use more of it."""

    def picture(self) -> WeightsPicture:
        """Describe the memory of the weights; never waits for a load."""

    def unload_all(self) -> None:
        """Drop all cached weights that nobody uses now."""

    def take_waited_s(self) -> float:
        """Return how long this thread waited for weights inside of computing, since the last call."""


class _Clock:
    """Divide the time of an invocation into its phases; the phase that raises keeps what it took."""

    def __init__(self) -> None:
        self._seconds = {"load_s": 0.0, "transfer_s": 0.0, "compute_s": 0.0, "waited_s": 0.0}
        self._phase = "load_s"
        self._since_s = time.perf_counter()

    def enter(self, phase: str) -> None:
        now_s = time.perf_counter()
        self._seconds[self._phase] += now_s - self._since_s
        self._phase, self._since_s = phase, now_s

    def timing(self, loading_s: float, streams: RunStreams) -> Timing:
        """Return what the phases took; what was no computing goes where it belongs."""
        self.enter(self._phase)
        other = {"load_s": loading_s, "waited_s": streams.waited_s, "transfer_s": streams.fetched_s}
        for phase, seconds in other.items():
            self._seconds[phase] += seconds
        self._seconds["compute_s"] = max(0.0, self._seconds["compute_s"] - sum(other.values()))
        return Timing(**self._seconds)


class Execution:
    """Run invocations against one store and one pool; several lanes may use it at once.

    announce: tells that an invocation publishes. prepare: takes the picture of a result that is about to be
    answered; without it there are none.
    """

    def __init__(
        self,
        functions: Mapping[str, ModelFn],
        store: TensorStore,
        pool: WeightPool,
        announce: Announce,
        prepare: Callable[[InvocationId, Later], None] | None = None,
    ) -> None:
        self._functions = functions
        self._store = store
        self._pool = pool
        self._streams = Streams(store, announce)
        self._prepare = prepare

    def unload_models(self) -> None:
        """Drop all cached weights that nobody uses now."""
        self._pool.unload_all()
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.empty_cache()

    def free(self, tensors: Sequence[TensorId]) -> None:
        """Forget tensors and publications; unknown ids are ignored."""
        self._streams.free(tensors)

    def run(self, run: RunInvocation, ticket: Ticket) -> FromWorker:
        """Run one invocation and return the answer.

        A cancelled one ends at its next layer, and at once if it waits for elements of an input; its result is
        dropped. compute_s includes the time to store the outputs, which waits for the device.
        """
        check = _checking(ticket)
        clock, streams = _Clock(), RunStreams(self._streams, run, check)
        try:
            with interruptible(check):
                outputs = self._execute(run, clock, streams)
            if not ticket.commit():
                raise Cancelled
            outputs, picture = _apart(outputs)
            stored = values.encode(self._store.put_tree(outputs))
            saved = _save(run, outputs)
            timing = clock.timing(self._pool.take_waited_s(), streams)
            shows = picture is not None and self._prepare is not None
            if picture is not None and self._prepare is not None:
                self._prepare(run.invocation, picture)
            return InvocationDone(run.invocation, stored, timing, *saved, shows)
        except Cancelled:
            streams.abandon()
            return InvocationCancelled(run.invocation, clock.timing(self._pool.take_waited_s(), streams))
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - worker step: every failure becomes an answer
            streams.abandon()
            return self._failed(run, exc, clock.timing(self._pool.take_waited_s(), streams))

    def _execute(self, run: RunInvocation, clock: _Clock, streams: RunStreams) -> Mapping[str, Any]:
        if run.restore:
            clock.enter("transfer_s")
            outputs: Mapping[str, Any] = read_checkpoint(run.restore)
            return outputs
        function = self._functions.get(run.function)
        if function is None:
            raise PromptError(f"this worker has no model function {run.function!r}")
        refs = values.decode(run.inputs)
        components = function.load_model(refs, self._pool)
        self._pool.take_waited_s()  # so far it is counted as loading already
        clock.enter("transfer_s")
        # Outside of inference mode, so that a function may still ask for gradients on its inputs.
        inputs, _ = self._store.get_tree(refs, on_host=run.lane == "cpu")
        inputs = streams.open(inputs)
        clock.enter("compute_s")
        with torch.inference_mode():
            return streams.make(function.execute(components, **inputs), refs)

    def _failed(self, run: RunInvocation, error: BaseException, timing: Timing) -> InvocationFailed:
        if is_out_of_memory(error):
            log.warning("out of memory in %s; dropping all cached weights", run.function)
            self.unload_models()
        else:
            log.debug("%s failed: %s: %s", run.function, type_name(error), error)
        frames = format_frames(error, __file__)
        return InvocationFailed(run.invocation, type_name(error), _printable(error), frames, timing)


def _apart(outputs: Mapping[str, Any]) -> tuple[Mapping[str, Any], Later | None]:
    """Return outputs with None where a picture comes later, and that picture if there is one."""
    picture = next((value for value in outputs.values() if isinstance(value, Later)), None)
    if picture is None:
        return outputs, None
    return {port: None if value is picture else value for port, value in outputs.items()}, picture


def _checking(ticket: Ticket) -> Callable[[], None]:
    def check() -> None:
        if ticket.is_cancelled():
            raise Cancelled

    return check


def _save(run: RunInvocation, outputs: Mapping[str, Any]) -> tuple[int, float]:
    """Write the checkpoint that is asked for; returns its size (0: there is none) and the seconds it took."""
    if run.save is None:
        return 0, 0.0
    begin_s = time.perf_counter()
    try:
        size_bytes = write_checkpoint(run.save.path, outputs, run.save.limit_bytes)
    except OSError as exc:  # no room: the run can do without
        log.debug("no checkpoint of %s: %s", run.invocation, exc)
        size_bytes = 0
    return size_bytes, time.perf_counter() - begin_s


def _printable(error: BaseException) -> str:
    """Return an exception's message without the lone surrogates that undecodable file names bring in."""
    return str(error).encode("utf-8", "replace").decode()
