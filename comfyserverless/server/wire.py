"""Turn what happens in runs into ComfyUI's websocket messages; pure, no sockets.

Order and recipients follow the recorded server. A job's messages go to the client that submitted it;
without a client only progress, previews and the interruption are sent, to every socket. A preview reaches
clients that know its metadata before the `progress` of its step, all others after it: so `progress` is held
back until the next notice, or until `flush`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from comfyserverless.control.views import (
    NodeBlocked,
    NodeEvent,
    NodeExecuted,
    NodeFinished,
    NodePreview,
    NodeProgress,
    NodesCached,
    NodeStarted,
    NodeText,
    Notice,
    QueueChanged,
    RunEnded,
    RunEvent,
    RunFailed,
    RunInterrupted,
    RunStarted,
    RunSucceeded,
)
from comfyserverless.core.ids import NodeId, PromptId, TenantId
from comfyserverless.server.bodies import encode_json

_PREVIEW = 1
_TEXT = 3
_PREVIEW_WITH_METADATA = 4
_JPEG, _PNG = 1, 2
_PNG_START = b"\x89PNG"
_NODES_ALWAYS_TOLD = 256
"""Up to so many nodes every start and end of a node repeats the state of all; beyond, ever fewer do."""
_USUAL_ID_CHARS = 32
"""Ids of nested expansions grow with their depth; a longer id counts as several nodes."""

_RunKey = tuple[TenantId, PromptId]
"""Clients choose prompt ids: two tenants may choose the same one."""

Lifecycle = RunStarted | NodesCached | RunSucceeded | RunFailed | RunInterrupted


class Support(Enum):
    """Which sockets a message is for, by what they said they understand."""

    ANY = "any"
    METADATA = "metadata"
    LEGACY = "legacy"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message and who gets it; client_id None means every socket of the tenant.

    is_droppable: a slow client loses nothing that later messages do not repeat.
    """

    tenant: TenantId
    client_id: str | None
    type: str
    data: Mapping[str, Any]
    image: bytes = b""
    support: Support = Support.ANY
    is_droppable: bool = False

    @property
    def run(self) -> PromptId | None:
        """Return the prompt that a message is about."""
        run: PromptId | None = self.data.get("prompt_id")
        return run

    @property
    def is_lasting(self) -> bool:
        """Tell whether a client needs it however late it comes: not where a run was at some time."""
        is_passing = self.type == "executing" and self.data.get("node") is not None
        return not self.is_droppable and not is_passing and self.run is not None

    def frame(self) -> str | bytes:
        """Encode for the socket: text, or binary for previews."""
        if self.type == "preview":
            return struct.pack(">II", _PREVIEW, _PNG if is_png(self.image) else _JPEG) + self.image
        if self.type == "preview_with_metadata":
            header = encode_json(self.data)
            return struct.pack(">II", _PREVIEW_WITH_METADATA, len(header)) + header + self.image
        if self.type == "progress_text":
            node = str(self.data["node"]).encode()
            return struct.pack(">II", _TEXT, len(node)) + node + str(self.data["text"]).encode()
        return text_frame(self.type, self.data)


def is_png(image: bytes) -> bool:
    """Tell whether an encoded picture is a PNG; all others are JPEGs."""
    return image.startswith(_PNG_START)


def text_frame(kind: str, data: Any) -> str:
    """Encode one text message."""
    return encode_json({"type": kind, "data": data}).decode()


def status_data(remaining: int) -> dict[str, Any]:
    """Return the data of a `status` message."""
    return {"status": {"exec_info": {"queue_remaining": remaining}}}


def lifecycle_message(event: Lifecycle) -> tuple[str, dict[str, Any]]:
    """Return (type, data) of an event that history keeps too."""
    run = {"prompt_id": event.run}
    match event:
        case RunStarted():
            return "execution_start", {**run, "timestamp": event.at_ms}
        case NodesCached():
            return "execution_cached", {"nodes": list(event.nodes), **run, "timestamp": event.at_ms}
        case RunSucceeded():
            return "execution_success", {**run, "timestamp": event.at_ms}
        case RunInterrupted():
            return "execution_interrupted", {
                **run,
                "node_id": event.node,
                "node_type": event.node_type,
                "executed": list(event.executed),
                "timestamp": event.at_ms,
            }
        case RunFailed():
            return "execution_error", _failure_data(event)


def _failure_data(event: RunFailed) -> dict[str, Any]:
    return {
        "prompt_id": event.run,
        "node_id": event.node,
        "node_type": event.node_type,
        "executed": list(event.executed),
        "exception_message": event.exception_message,
        "exception_type": event.exception_type,
        "traceback": list(event.traceback),
        "current_inputs": [] if event.current_inputs is None else dict(event.current_inputs),
        "current_outputs": list(event.current_outputs),
        "timestamp": event.at_ms,
    }


class Translator:
    """Remember per run which nodes were seen, because `progress_state` repeats all of them."""

    def __init__(self) -> None:
        #: all and only runs with a started node that have not ended; inner dicts are replaced, never changed.
        self._nodes: dict[_RunKey, dict[NodeId, dict[str, Any]]] = {}
        #: the length of all ids of those nodes together; keys are those of _nodes.
        self._id_chars: dict[_RunKey, int] = {}
        #: runs whose last `progress_state` is out of date -> how many updates it lacks.
        self._untold: dict[_RunKey, int] = {}
        #: all and only `progress` messages whose step may still get a preview.
        self._held: dict[_RunKey, Outgoing] = {}
        self._handlers: dict[type, Callable[[Any], list[Outgoing]]] = {
            RunStarted: self._on_lifecycle,
            NodesCached: self._on_lifecycle,
            RunSucceeded: self._on_lifecycle,
            RunFailed: self._on_lifecycle,
            RunInterrupted: self._on_lifecycle,
            NodeStarted: self._on_node_started,
            NodeProgress: self._on_node_progress,
            NodePreview: self._on_node_preview,
            NodeText: self._on_node_text,
            NodeBlocked: self._on_node_blocked,
            NodeExecuted: self._on_node_executed,
            NodeFinished: self._on_node_finished,
            RunEnded: self._on_run_ended,
        }

    def translate(self, notice: Notice) -> list[Outgoing]:
        """Return the messages that a notice causes, in the order of sending."""
        if isinstance(notice, QueueChanged):
            return [Outgoing(notice.tenant, None, "status", status_data(notice.remaining))]
        if isinstance(notice, NodePreview):
            return self._on_node_preview(notice)
        return [*self._release(notice), *self._handlers[type(notice)](notice)]

    def flush(self) -> list[Outgoing]:
        """Return the held messages: no preview came."""
        held = list(self._held.values())
        self._held.clear()
        return held

    @property
    def has_held(self) -> bool:
        """Tell whether `flush` has something to send."""
        return bool(self._held)

    def progress_of(self, tenant: TenantId, run: PromptId) -> tuple[str, dict[str, Any]] | None:
        """Return the `progress_state` of a running prompt as of now; None if no node of it has started."""
        nodes = self._nodes.get((tenant, run))
        return None if nodes is None else ("progress_state", {"prompt_id": run, "nodes": dict(nodes)})

    def _release(self, event: RunEvent) -> list[Outgoing]:
        held = self._held.pop(_key(event), None)
        return [] if held is None else [held]

    def _on_lifecycle(self, event: Lifecycle) -> list[Outgoing]:
        kind, data = lifecycle_message(event)
        states = [] if self._untold.pop(_key(event), None) is None else [self._progress_state(event)]
        if event.client_id is None and not isinstance(event, RunInterrupted):
            return states
        return [*states, _outgoing(event, kind, data)]

    def _on_node_started(self, event: NodeStarted) -> list[Outgoing]:
        states = self._tell_sometimes(event, 0.0, 1.0, "running")
        if event.client_id is None:
            return states
        data = {"node": event.node, "display_node": event.display, "prompt_id": event.run}
        return [*states, _outgoing(event, "executing", data)]

    def _on_node_progress(self, event: NodeProgress) -> list[Outgoing]:
        data = {"value": event.value, "max": event.maximum, "prompt_id": event.run, "node": event.node}
        self._held[_key(event)] = _outgoing(event, "progress", data, is_droppable=True)
        self._note(event, event.value, event.maximum, "running")
        self._untold.pop(_key(event), None)
        return [self._progress_state(event)]

    def _on_node_preview(self, event: NodePreview) -> list[Outgoing]:
        progress = self._release(event)
        legacy = _preview(event, "preview", {}, Support.ANY if event.client_id is None else Support.LEGACY)
        if event.client_id is None:
            return [*progress, legacy]
        data = {**_place(event), "image_type": "image/png" if is_png(event.jpeg) else "image/jpeg"}
        return [_preview(event, "preview_with_metadata", data, Support.METADATA), *progress, legacy]

    def _on_node_executed(self, event: NodeExecuted) -> list[Outgoing]:
        if event.client_id is None:
            return []
        output = None if event.ui is None else dict(event.ui)
        data = {"node": event.node, "display_node": event.display, "output": output, "prompt_id": event.run}
        return [_outgoing(event, "executed", data)]

    def _on_node_text(self, event: NodeText) -> list[Outgoing]:
        data = {"node": event.node, "text": event.text, "prompt_id": event.run}
        return [_outgoing(event, "progress_text", data, is_droppable=True)]

    def _on_node_blocked(self, event: NodeBlocked) -> list[Outgoing]:
        if event.client_id is None:
            return []
        data = {
            "prompt_id": event.run,
            "node_id": event.node if event.origin is None else event.origin.real,
            "node_type": event.node_type,
            "executed": list(event.executed),
            "exception_message": f"This node did not run: {event.message}",
            "exception_type": "ExecutionBlocked",
            "traceback": [],
            "current_inputs": [],
            "current_outputs": [],
        }
        return [_outgoing(event, "execution_error", data)]

    def _on_node_finished(self, event: NodeFinished) -> list[Outgoing]:
        seen = self._nodes.get(_key(event), {}).get(event.node)
        maximum = 1 if seen is None else seen["max"]
        return self._tell_sometimes(event, maximum, maximum, "finished")

    def _on_run_ended(self, event: RunEnded) -> list[Outgoing]:
        self._nodes.pop(_key(event), None)
        self._id_chars.pop(_key(event), None)
        self._untold.pop(_key(event), None)
        if event.client_id is None:
            return []
        return [_outgoing(event, "executing", {"node": None, "prompt_id": event.run})]

    def _tell_sometimes(
        self, event: NodeStarted | NodeFinished, value: float, maximum: float, state: str
    ) -> list[Outgoing]:
        """Note where a node is; tell it now, or in a huge run with a later one: a message holds all nodes."""
        self._note(event, value, maximum, state)
        untold = self._untold.get(_key(event), 0) + 1
        count = max(len(self._nodes[_key(event)]), self._id_chars[_key(event)] // _USUAL_ID_CHARS)
        if untold < (count // _NODES_ALWAYS_TOLD) ** 2:
            self._untold[_key(event)] = untold
            return []
        self._untold.pop(_key(event), None)
        return [self._progress_state(event)]

    def _note(
        self, event: NodeStarted | NodeProgress | NodeFinished, value: float, maximum: float, state: str
    ) -> None:
        nodes = self._nodes.setdefault(_key(event), {})
        if event.node not in nodes:
            self._id_chars[_key(event)] = self._id_chars.get(_key(event), 0) + len(event.node)
        nodes[event.node] = {
            "value": value,
            "max": maximum,
            "state": state,
            **_place(event),
        }

    def _progress_state(self, event: RunEvent) -> Outgoing:
        data = {"prompt_id": event.run, "nodes": dict(self._nodes[_key(event)])}
        return _outgoing(event, "progress_state", data, is_droppable=True)


def _key(event: RunEvent) -> _RunKey:
    return event.tenant, event.run


def _place(event: NodeEvent) -> dict[str, Any]:
    """Say of which node and prompt a message is, and where that node belongs."""
    origin = event.origin
    return {
        "node_id": event.node,
        "prompt_id": event.run,
        "display_node_id": event.display,
        "parent_node_id": None if origin is None else origin.parent,
        "real_node_id": event.node if origin is None else origin.real,
    }


def _outgoing(event: RunEvent, kind: str, data: Mapping[str, Any], *, is_droppable: bool = False) -> Outgoing:
    return Outgoing(event.tenant, event.client_id, kind, data, is_droppable=is_droppable)


def _preview(event: NodePreview, kind: str, data: Mapping[str, Any], support: Support) -> Outgoing:
    return Outgoing(event.tenant, event.client_id, kind, data, event.jpeg, support, is_droppable=True)
