"""Define what the control room tells the server: run events as they happen, and records to read.

Events are domain facts; the server turns them into ComfyUI's messages. Times are Unix milliseconds.
For one run they arrive in ComfyUI's order: RunStarted, NodesCached, then per node NodeStarted, any
NodeProgress and NodePreview, NodeExecuted (only with ui), NodeFinished; then RunSucceeded, RunFailed or
RunInterrupted; then QueueChanged (the record is stored by then) and RunEnded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from comfyserverless.core.ids import DEFAULT_TENANT, NodeId, PromptId, TenantId
from comfyserverless.core.memory import MemoryPicture


class RunStatus(StrEnum):
    """Every accepted prompt is in exactly one of these; the last four are final."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    INTERRUPTED = "interrupted"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """One `POST /prompt`, after HTTP: raw prompt graph and ComfyUI's other fields.

    prompt_id: a canonical UUID or None (one is made); number: explicit priority or None; targets:
    partial_execution_targets (None means all output nodes).
    """

    prompt: Any
    tenant: TenantId = DEFAULT_TENANT
    client_id: str | None = None
    prompt_id: PromptId | None = None
    number: float | None = None
    front: bool = False
    extra_data: Mapping[str, Any] = field(default_factory=dict)
    targets: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """Accepted: error is None and number is set; rejected: error and node_errors in ComfyUI's shapes.

    retry_after_s: set if the same request may be accepted after so long.
    """

    prompt_id: PromptId | None
    number: float
    error: Mapping[str, Any] | None
    node_errors: Mapping[str, Any]
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Base of what happens in a run; client_id is the submitter's websocket session or None."""

    run: PromptId
    tenant: TenantId
    client_id: str | None


@dataclass(frozen=True, slots=True)
class RunStarted(RunEvent):
    """The run left the queue."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class NodesCached(RunEvent):
    """These nodes of the prompt have a cached result; sent once per run, also when empty."""

    nodes: tuple[NodeId, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class NodeOrigin:
    """Where a node belongs that an expansion has added while the prompt runs.

    display: the page shows it there; parent: whose expansion added it; real: the submitted node it comes from.
    """

    display: NodeId
    parent: NodeId
    real: NodeId


@dataclass(frozen=True, slots=True)
class NodeEvent(RunEvent):
    """Base of what happens at a node. origin: None for a submitted node."""

    node: NodeId
    origin: NodeOrigin | None = field(default=None, kw_only=True)

    @property
    def display(self) -> NodeId:
        """Return the node at which the page shows this."""
        return self.node if self.origin is None else self.origin.display


@dataclass(frozen=True, slots=True)
class NodeStarted(NodeEvent):
    """A node is the one that runs now (as ComfyUI's users see it).

    is_again: it goes on after it has waited for lazy inputs.
    """

    is_again: bool = False


@dataclass(frozen=True, slots=True)
class NodeProgress(NodeEvent):
    """A node reached `value` of `maximum`; a preview of the same step comes as NodePreview right after."""

    value: float
    maximum: float


@dataclass(frozen=True, slots=True)
class NodePreview(NodeEvent):
    """A picture of the image in the making, as JPEG (or PNG, from a custom node)."""

    jpeg: bytes


@dataclass(frozen=True, slots=True)
class NodeText(NodeEvent):
    """A custom node shows a text while it runs."""

    text: str


@dataclass(frozen=True, slots=True)
class NodeBlocked(NodeEvent):
    """A node does not run because a value it needs was withheld, with a message; the run goes on.

    node_type: of the submitted node; executed: as in RunFailed.
    """

    node_type: str
    message: str
    executed: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class NodeExecuted(NodeEvent):
    """An output node gave its ui dict (None: replayed from cache, and the node has none)."""

    ui: Mapping[str, list[Any]] | None


@dataclass(frozen=True, slots=True)
class NodeFinished(NodeEvent):
    """A node is done."""


@dataclass(frozen=True, slots=True)
class RunSucceeded(RunEvent):
    """All targets are done."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class RunFailed(RunEvent):
    """A node failed; fields as in ComfyUI's execution_error. current_inputs: None if no node had any yet."""

    node: NodeId
    node_type: str
    executed: tuple[NodeId, ...]
    exception_message: str
    exception_type: str
    traceback: tuple[str, ...]
    current_inputs: Mapping[str, Any] | None
    current_outputs: tuple[NodeId, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class RunInterrupted(RunEvent):
    """The user stopped the run while this node ran."""

    node: NodeId
    node_type: str
    executed: tuple[NodeId, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class RunEnded(RunEvent):
    """Last event of a run (ComfyUI's `executing` with node null)."""


@dataclass(frozen=True, slots=True)
class QueueChanged:
    """The number of pending plus running prompts of a tenant changed, or was re-announced."""

    tenant: TenantId
    remaining: int


Notice = RunEvent | QueueChanged


MOST_PRIORITY = 100
"""Priorities of prompts go from -100 to this."""


def priority_of(extra_data: Mapping[str, Any]) -> int:
    """Read the priority of a prompt, 0 if it names none. Raises ValueError with what is allowed."""
    value = extra_data.get("priority")
    if value is None:
        return 0
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    if not is_whole or abs(value) > MOST_PRIORITY:
        raise ValueError(f"a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}, not {value!r}")
    return int(value)


@dataclass(slots=True)
class RunRecord:
    """Everything that is kept of one accepted prompt; the engine owns and mutates it, readers only read.

    outputs: ui dicts by node id, of executed and replayed output nodes. messages: the lifecycle events that
    history shows (RunStarted, NodesCached, then the final one). error: set when status is ERROR. priority: the
    higher, the earlier among the prompts of its tenant. workflow: id of the page's workflow, if it said one.
    origins: of those nodes in outputs that expansions have added.
    """

    prompt_id: PromptId
    tenant: TenantId
    number: float
    prompt: Mapping[str, Any]
    extra_data: Mapping[str, Any]
    targets: tuple[NodeId, ...]
    client_id: str | None
    created_ms: int
    status: RunStatus = RunStatus.PENDING
    started_ms: int | None = None
    ended_ms: int | None = None
    outputs: dict[NodeId, Mapping[str, list[Any]]] = field(default_factory=dict)
    messages: list[RunStarted | NodesCached | RunSucceeded | RunFailed | RunInterrupted] = field(
        default_factory=list
    )
    current_node: NodeId | None = None
    priority: int = 0
    workflow: str | None = None
    origins: dict[NodeId, NodeOrigin] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TenantUsage:
    """What a tenant takes up.

    service_s: lane -> seconds of service so far, by earlier servers too; today_s: since the UTC day began.
    waited_s: lane -> seconds since the server started that its calls held one while they waited for others of
    its calls, and nobody else wanted it; they are not charged.
    """

    tenant: TenantId
    weight: float
    pending: int
    running: int
    service_s: Mapping[str, float]
    today_s: Mapping[str, float]
    waited_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RecoveryView:
    """What losses of workers have cost since the server started.

    steps_rerun: steps that were taken again; restored: how often a walk went on from a checkpoint; checkpoints,
    checkpoint_bytes: those that are kept now; checkpoint_steps: the most steps that were put between two.
    """

    workers_lost: int
    steps_rerun: int
    restored: int
    checkpoints: int
    checkpoint_bytes: int
    checkpoint_steps: int


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker slot as the operator sees it; state: starting, ready, busy or lost.

    memory: which layers of which models are there, and the rest of its memory; None before the first report.
    """

    slot: str
    worker: str | None
    pid: int | None
    state: str
    restarts: int
    device_name: str
    device_kind: str
    device_index: int | None
    device_total_bytes: int
    device_free_bytes: int
    resident_bytes: int
    arena_used_bytes: int
    arena_bytes: int
    weights_bytes: int
    running: tuple[str, ...]
    torch_version: str
    memory: MemoryPicture | None = None
