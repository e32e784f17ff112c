"""Know the node host: whether it is there, what it brings, and how to ask it.

For those who use it:

- `catalog` is what the packs bring, None until they are loaded (`await loaded(within_s)`).
- `await ask(kind, payload, within_s)` asks a question of `core.hosting`; payload and answer are value trees.
- `listen(kind, listener)` tells of notices: listener(payload, invocation) on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from comfyserverless.control.files import FolderPaths
from comfyserverless.control.hosting.health import HostHealth
from comfyserverless.control.hosting.output import HostOutput
from comfyserverless.control.hosting.plan import has_packs, make_plan, mark_of
from comfyserverless.control.views import WorkerView
from comfyserverless.core import messages as wire
from comfyserverless.core import values
from comfyserverless.core.config import EngineConfig
from comfyserverless.core.errors import CapacityError, PromptError
from comfyserverless.core.hosting import Catalog, HostPlan, PackReport
from comfyserverless.core.ids import InvocationId, WorkerId

log = logging.getLogger(__name__)

LOADED_WITHIN_S = 120.0
"""How long a prompt with nodes of packs waits for them to be loaded."""

_ANSWER_WITHIN_S = 60.0
_IMPORT_LIMIT_S = 600.0
_MOST_UNANSWERED = 6
_LOOK_EVERY_S = 0.5
_T = TypeVar("_T")

NoticeListener = Callable[[Any, InvocationId | None], None]
RequestListener = Callable[[wire.HostRequest], None]


@dataclass(frozen=True, slots=True)
class HostView:
    """The node host as operators see it; state: none, starting, loading, ready, busy or lost.

    problem: why nodes of packs are not there, in one sentence; empty if nothing is wrong.
    """

    state: str
    pid: int | None
    restarts: int
    packs: tuple[PackReport, ...]
    running: tuple[str, ...] = ()
    resident_bytes: int = 0
    problem: str = ""


class HostDown(CapacityError):
    """The node host is not there, or did not answer in time."""


class _HostEnded(HostDown):
    """The node host ended; there may be another one soon."""


class PackHost:
    """Follow the node host through its lives. send: delivers a message to it; kill: ends it, for a new one."""

    def __init__(self, config: EngineConfig, files: FolderPaths, scratch: Path) -> None:
        self._config = config
        self._files = files
        self._scratch = scratch
        self.is_wanted = has_packs(config, files)
        """Whether there are packs, so that there is a host."""
        self.catalog: Catalog | None = None
        self.worker: WorkerId | None = None
        self._output = HostOutput()
        self._send: Callable[[WorkerId, wire.ToWorker], None] = lambda *_: None
        self._kill: Callable[[WorkerId], None] = lambda _: None
        self._look: Callable[[], WorkerView | None] = lambda: None
        self._listeners: dict[str, list[NoticeListener]] = {}
        self._on_request: RequestListener | None = None
        self._ids = itertools.count()
        #: all and only questions that were asked and not answered.
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._loaded = asyncio.Event()
        self.health = HostHealth(lambda pack: mark_of(files, pack))
        #: all and only nodes that wait for their answers; they fail when nobody is to wait any more.
        self._hopes: set[asyncio.Future[Any]] = set()
        self._is_stopping = False
        #: questions in a row that nobody answered in time.
        self._unanswered = 0
        self._watch: asyncio.Task[None] | None = None

    def connect(
        self,
        send: Callable[[WorkerId, wire.ToWorker], None],
        kill: Callable[[WorkerId], None],
        look: Callable[[], WorkerView | None],
    ) -> None:
        """Say how to reach the host, how to end it, and how its process is."""
        self._send, self._kill, self._look = send, kill, look

    def view(self) -> HostView:
        """Describe the host to operators."""
        process = self._look()
        if not self.is_wanted or process is None:
            return HostView("none", None, 0, ())
        packs = self.catalog.packs if self.catalog else ()
        state = "loading" if process.state in ("ready", "busy") and not self._loaded.is_set() else process.state
        about = packs, process.running, process.resident_bytes, self.health.problem()
        return HostView(state, process.pid, process.restarts, *about)

    async def start(self) -> None:
        """Listen for what the host prints, and watch over its loading."""
        if self.is_wanted:
            await self._output.start(self._scratch / "packs.out")
            self._watch = asyncio.create_task(self._watch_loading(), name="pack-host-watch")

    async def stop(self) -> None:
        """Answer nobody any more."""
        self._is_stopping = True
        if self._watch is not None:
            self._watch.cancel()
        self._drop_questions("the server is stopping")
        await self._output.stop()

    def plan(self) -> HostPlan:
        """Return what the next host is started with."""
        return make_plan(self._config, self._files, self._scratch, self.health.given_up())

    def ended(self) -> float:
        """Take note that the process is over; returns how many seconds to wait before the next one."""
        delay_s = self.health.ended()
        if self.health.is_failing:
            for hope in self._hopes:
                if not hope.done():
                    hope.set_exception(HostDown(self.health.problem()))
        return delay_s

    def not_started(self) -> None:
        """Take note that no process can be started now."""
        self.health.not_started()
        log.error("the node packs are not there: %s", self.health.problem())

    def listen(self, kind: str, listener: NoticeListener) -> None:
        """Tell of notices of a kind: `progress`, `text`, `send`, `metadata`, `catalog`."""
        self._listeners.setdefault(kind, []).append(listener)

    def serve_requests(self, listener: RequestListener) -> None:
        """Say who answers requests of nodes that run."""
        self._on_request = listener

    async def loaded(self, within_s: float = LOADED_WITHIN_S) -> Catalog | None:
        """Wait until the packs are loaded; None if there are none, it takes longer, or waiting is of no use."""
        return await self._loaded_while(within_s, lambda: not self.health.is_failing)

    async def loaded_soon(self, within_s: float) -> Catalog | None:
        """Do the same, but only as long as loading goes on: the page can do without."""
        return await self._loaded_while(within_s, lambda: self.health.patience_s() > 0.0)

    async def _loaded_while(self, within_s: float, is_worth_it: Callable[[], bool]) -> Catalog | None:
        if not self.is_wanted:
            return None
        deadline_s = time.monotonic() + within_s
        while not self._loaded.is_set():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0.0 or not is_worth_it():
                return None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._loaded.wait(), min(left_s, _LOOK_EVERY_S))
        return self.catalog

    async def answer_of(self, answers: Awaitable[_T]) -> _T:
        """Wait for what a node gives. Raises HostDown if nobody is to wait any more for the process."""
        hope = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(answers)
        self._hopes.add(hope)
        if self.health.is_failing and self.worker is None:
            hope.set_exception(HostDown(self.health.problem()))
        try:
            either: set[asyncio.Future[Any]] = {waiting, hope}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else hope.result()
        finally:
            self._hopes.discard(hope)
            waiting.cancel()
            if not hope.cancel() and not hope.cancelled():
                hope.exception()

    async def ask(self, kind: str, payload: Any, within_s: float = _ANSWER_WITHIN_S) -> Any:
        """Ask the host; one that ends meanwhile is followed by another one, which is asked once more.

        Raises HostDown if none is there or answers in time, ValueError with its words if it could not answer,
        and PromptError if the payload cannot be sent.
        """
        try:
            return await self._ask(kind, payload, within_s)
        except _HostEnded:
            if self._is_stopping:
                raise
            await self.loaded()
            return await self._ask(kind, payload, within_s)

    async def _ask(self, kind: str, payload: Any, within_s: float) -> Any:
        worker = self.worker
        if worker is None:
            raise _HostEnded("The process of the node packs is not running")
        try:
            data = values.encode(payload)
        except (TypeError, ValueError, OverflowError) as exc:
            raise PromptError(f"The node packs cannot be asked about this: {exc}") from exc
        number = next(self._ids)
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(worker, wire.HostQuestion(number, kind, data))
            answer = await asyncio.wait_for(asked, within_s)
        except TimeoutError as exc:
            self._note_silence(worker)
            raise HostDown(f"The node packs did not answer within {within_s:g} s ({kind})") from exc
        finally:
            self._asked.pop(number, None)
        return values.decode(answer)

    def reply(self, request: int, payload: Any, error_type: str = "", error: str = "") -> None:
        """Answer a request."""
        if self.worker is not None:
            data = b"" if error_type else values.encode(payload)
            self._send(self.worker, wire.HostReply(request, data, error_type, error))

    # -- what the pool tells ----------------------------------------------------------------------

    def joined(self, worker: WorkerId) -> None:
        """Take note of a new host; it loads its packs now."""
        self.worker = worker
        self.health.joined()

    def lost(self, worker: WorkerId, *, is_busy: bool = False) -> None:
        """Take note that the host is gone; is_busy: a node ran there."""
        if worker != self.worker:
            return
        self.worker = None
        self._loaded.clear()
        if not self._is_stopping:
            self.health.lost(is_busy=is_busy)
        self._drop_questions("The process of the node packs ended")

    def received(self, message: wire.HostAnswer | wire.HostRequest | wire.HostNotice) -> None:
        """Take a message of the host."""
        match message:
            case wire.HostAnswer(id=number, payload=payload, error=error):
                self._unanswered = 0
                asked = self._asked.pop(number, None)
                if asked is not None and not asked.done():
                    if error:
                        asked.set_exception(ValueError(error))
                    else:
                        asked.set_result(payload)
            case wire.HostRequest():
                if self._on_request is not None:
                    self._on_request(message)
            case wire.HostNotice(kind=kind, payload=payload, invocation=invocation):
                self._noticed(kind, values.decode(payload), invocation)

    def _noticed(self, kind: str, payload: Any, invocation: InvocationId | None) -> None:
        if kind == "loading":
            self.health.begun(str(payload["pack"]))
        elif kind == "leaving":
            self.health.leaving(str(payload["pack"]), str(payload["where"]))
        elif kind == "catalog":
            self.catalog = msgspec.convert(payload, Catalog)
            self.health.loaded()
            self._loaded.set()
            _tell(self.catalog.packs)
        for listener in self._listeners.get(kind, ()):
            listener(payload, invocation)

    def _note_silence(self, worker: WorkerId) -> None:
        """End a host that answers no questions any more: packs hold up all who answer."""
        self._unanswered += 1
        if self._unanswered >= _MOST_UNANSWERED and worker == self.worker:
            log.error("the node packs answer no questions any more; ending their process")
            self._unanswered = 0
            self._kill(worker)

    def _drop_questions(self, why: str) -> None:
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(_HostEnded(why))
        self._asked.clear()

    async def _watch_loading(self) -> None:
        """End a host whose pack never stops to import: others wait behind it."""
        while True:
            await asyncio.sleep(5.0)
            if self.worker is not None and self.health.import_s() > _IMPORT_LIMIT_S:
                log.error("the import of node pack %s does not end; ending it", self.health.loading)
                self._kill(self.worker)


def _tell(packs: tuple[PackReport, ...]) -> None:
    failed = [pack.name for pack in packs if pack.error]
    classes = sum(len(pack.classes) for pack in packs)
    log.info("%d node packs with %d classes are loaded", len(packs) - len(failed), classes)
    if failed:
        log.warning("node packs that could not be loaded: %s", ", ".join(failed))
