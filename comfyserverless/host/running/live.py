"""Be the bridge of the node host: ask the control process, tell it, and see whether a call was interrupted."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from comfyserverless.core import values as trees
from comfyserverless.core.errors import CapacityError, NoRoomError
from comfyserverless.core.ids import InvocationId
from comfyserverless.core.messages import FromWorker, HostNotice, HostReply, HostRequest
from comfyserverless.host.bridge import CallInfo, InterruptProcessingException, Places
from comfyserverless.host.running.current import Call, current
from comfyserverless.host.running.pacing import Budget
from comfyserverless.host.values import Codec
from comfyserverless.worker.failures import OUT_OF_MEMORY

_LOOK_EVERY_S = 0.25
_WITHOUT_CALL_WITHIN_S = 60.0
_NOBODY = CallInfo()
_T = TypeVar("_T")


@dataclass(slots=True)
class _Waiting:
    """One request on its way; reply: what came."""

    done: threading.Event = field(default_factory=threading.Event)
    reply: HostReply | None = None


class LiveBridge:
    """Implement `host.bridge.Bridge` over the link. send: delivers a message, from any thread."""

    def __init__(self, send: Callable[[FromWorker], None], codec: Codec, places: Places) -> None:
        self._send = send
        self._codec = codec
        self._places = places
        self._budget = Budget()
        self._ids = itertools.count()
        self._lock = threading.Lock()
        #: all and only requests that were sent and not answered.
        self._waiting: dict[int, _Waiting] = {}

    @property
    def call(self) -> CallInfo:
        """Return what this thread or task executes, an empty one outside of a call."""
        call = current()
        return _NOBODY if call is None else call.info

    @property
    def places(self) -> Places:
        """Return the folders of the tenant that is served now, of the server itself outside of a call."""
        call = current()
        return self._places if call is None else call.running.places

    def ask(self, kind: str, payload: Any) -> Any:
        """Ask the control process and wait; see `host.bridge.Bridge.ask`.

        What the call waits for is not counted as its own time: others are charged with it, or it is charged
        where it runs.
        """
        call = current()
        made: list[Any] = []

        def save() -> Any:
            try:
                return self._codec.save_arguments(payload, made)
            except NoRoomError:
                self._codec.free(made)
                made.clear()
                raise

        tree = self.with_room(save)
        try:
            reply = self._exchange(call, kind, trees.encode(tree))
            if not reply.error_type:
                answer = self._codec.load(trees.decode(reply.payload))
                self._notice("read", {"request": reply.id})
                return answer
        finally:
            self._codec.free(made)  # not before the answer was read: it may mention arguments
        raise _error_of(reply)

    def with_room(self, save: Callable[[], _T]) -> _T:
        """Save something, as often as the server says that there is room now; nothing else is done again.

        Raises CapacityError, which no NoRoomError is: for that the whole node would run a second time.
        """
        while True:
            try:
                return save()
            except NoRoomError as exc:
                reply = self._exchange(current(), "room", trees.encode({}))
                self._notice("read", {"request": reply.id})
                if reply.error_type or not trees.decode(reply.payload):
                    raise CapacityError(str(exc)) from exc

    def ask_parts(self, wanted: dict[str, Any]) -> Any:
        """Ask for parts of the prompt of the current call (see `core.hosting`); what they name stays."""
        reply = self._exchange(current(), "prompt", trees.encode(wanted))
        if reply.error_type:
            raise _error_of(reply)
        return trees.decode(reply.payload)

    def reply(self, message: HostReply) -> None:
        """Take an answer, on the receiving thread; one that nobody waits for any more is dropped."""
        with self._lock:
            waiting = self._waiting.get(message.id)
        if waiting is not None:
            waiting.reply = message
            waiting.done.set()

    def progress(
        self, value: float, maximum: float, node_id: str | None = None, preview: bytes | None = None
    ) -> None:
        """Report progress of the current (or named) node. Raises InterruptProcessingException if it is over."""
        self.throw_if_interrupted()
        if preview is None and value < maximum and not self._budget.take():
            return
        told = {"value": float(value), "maximum": float(maximum), "node_id": self._node(node_id)}
        self._notice("progress", {**told, "preview": preview})

    def text(self, text: str, node_id: str | None = None) -> None:
        """Show a text at a node while it runs."""
        self._notice("text", {"text": text, "node_id": self._node(node_id)})

    def send(self, event: str | int, data: Any, client_id: str | None) -> None:
        """Send a message to a client's websocket, to all if client_id is None. event int: a binary event."""
        if isinstance(event, int):
            body: str | bytes = bytes(data)
        else:
            body = json.dumps(data, default=_shown)
        tenant = self.call.tenant if current() else ""
        self._notice("send", {"event": event, "data": body, "client_id": client_id, "tenant": tenant})

    def throw_if_interrupted(self) -> None:
        """Raise InterruptProcessingException if the prompt of this call was stopped."""
        call = current()
        if call is not None:
            call.running.check()

    def interrupt(self, value: bool = True) -> None:
        """Stop the current prompt; that it is to go on cannot be said any more once it was stopped."""
        if value:
            self.ask("interrupt", {"tenant": self.call.tenant})

    def stop_prompt_of(self, invocation: InvocationId) -> None:
        """Stop the prompt of an invocation without waiting: what it ran has said so itself."""
        with self._lock:
            number = next(self._ids)
        self._send(HostRequest(number, invocation, "interrupt", trees.encode({})))

    def metadata(self, invocation: InvocationId, extra_pnginfo: Any) -> None:
        """Tell that a node has changed what is saved in files."""
        body = trees.encode({"extra_pnginfo": json.dumps(extra_pnginfo, default=_shown)})
        self._send(HostNotice("metadata", body, invocation))

    def notice(self, kind: str, payload: Any) -> None:
        """Tell the control process something that belongs to no call."""
        self._send(HostNotice(kind, trees.encode(payload)))

    def _exchange(self, call: Call | None, kind: str, payload: bytes) -> HostReply:
        waiting = _Waiting()
        with self._lock:
            number = next(self._ids)
            self._waiting[number] = waiting
        invocation = InvocationId(call.info.invocation if call else "")
        try:
            self._send(HostRequest(number, invocation, kind, payload))
            if call is None:
                waiting.done.wait(_WITHOUT_CALL_WITHIN_S)
            else:
                with call.running.waiting():
                    while not waiting.done.wait(_LOOK_EVERY_S):
                        call.running.check()
        finally:
            with self._lock:
                del self._waiting[number]
        if waiting.reply is None:
            raise RuntimeError(f"{kind}: the server did not answer within {_WITHOUT_CALL_WITHIN_S:.0f} s")
        return waiting.reply

    def _notice(self, kind: str, payload: Any) -> None:
        call = current()
        invocation = InvocationId(call.info.invocation) if call else None
        self._send(HostNotice(kind, trees.encode(payload), invocation))

    def _node(self, node_id: str | None) -> str | None:
        return node_id if node_id is not None else self.call.node_id or None


def _error_of(reply: HostReply) -> Exception:
    """Return the exception that a pack expects: some of them try again in another way without memory."""
    if reply.error_type.endswith(InterruptProcessingException.__name__):
        return InterruptProcessingException(reply.error)
    if reply.error_type == OUT_OF_MEMORY:
        return torch.OutOfMemoryError(reply.error)
    return RuntimeError(reply.error)


def places_of(folders: dict[str, str], fallback: Places | None = None) -> Places:
    """Return folders by kind as places; a kind that is not there is that of the fallback."""

    def place(kind: str) -> Path:
        found = folders.get(kind)
        if found is None and fallback is not None:
            return Path(getattr(fallback, kind))
        return Path(found or ".").absolute()

    return Places(place("base"), place("input"), place("output"), place("temp"), place("user"))


def _shown(value: Any) -> Any:
    """Return a form for JSON of what has none: numbers of numpy's and tensors as such, the rest as text."""
    tolist = getattr(value, "tolist", None)
    return tolist() if callable(tolist) else str(value)
