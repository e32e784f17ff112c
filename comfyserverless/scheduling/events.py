"""List what can happen to the scheduling state: past tense, immutable, with the time inside."""

from __future__ import annotations

from dataclasses import dataclass

from comfyserverless.core.ids import InvocationId, NodeId, PromptId, TenantId, WorkerId
from comfyserverless.core.messages import Timing
from comfyserverless.core.modelfn import Lane


@dataclass(frozen=True, slots=True)
class InvocationSpec:
    """What scheduling knows of one invocation.

    needs: producers whose results it consumes; callback_needs: producers that it may overlap with (paper, 5.2).
    weights: keys of the model handles it runs on, for placement and load estimates; cost_key: what measured
    history is grouped by (function, weights, input size). is_step: it ends a step of a walk, and its result is
    all that the walk needs to go on from there. priority: of its run; of a tenant's ready invocations those
    with the highest go first, and other tenants do not feel it. node_class: of the node, for accounts of use.
    """

    id: InvocationId
    run: PromptId
    tenant: TenantId
    node: NodeId
    function: str
    lane: Lane
    cost_key: str
    needs: tuple[InvocationId, ...] = ()
    callback_needs: tuple[InvocationId, ...] = ()
    weights: tuple[str, ...] = ()
    is_step: bool = False
    priority: int = 0
    node_class: str = ""


@dataclass(frozen=True, slots=True)
class WorkerJoined:
    """A worker said hello and may get work; lanes: how many invocations it runs at once, by lane."""

    worker: WorkerId
    lanes: tuple[tuple[Lane, int], ...]
    at_s: float
    cause: str


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker's link broke or its process ended: what it ran and what its arena held is gone.

    silent_s: since its last sign of life.
    """

    worker: WorkerId
    at_s: float
    cause: str
    silent_s: float = 0.0


@dataclass(frozen=True, slots=True)
class InvocationSubmitted:
    """A lowering emitted an invocation; its needs were submitted before it."""

    spec: InvocationSpec
    at_s: float
    cause: str


@dataclass(frozen=True, slots=True)
class InvocationPublished:
    """A worker has begun it and tells its result element by element: its callback consumers may start."""

    invocation: InvocationId
    worker: WorkerId
    at_s: float
    cause: str


@dataclass(frozen=True, slots=True)
class InvocationFinished:
    """A worker ran it, or read its result from a checkpoint.

    holders: the workers whose arenas hold tensors of its result (may be empty). checkpoint_s: how long it took
    to write a checkpoint of the result, part of timing's compute_s; None if none was written.
    """

    invocation: InvocationId
    worker: WorkerId
    timing: Timing
    holders: tuple[WorkerId, ...]
    at_s: float
    cause: str
    checkpoint_s: float | None = None


@dataclass(frozen=True, slots=True)
class InvocationFailed:
    """The function raised on the worker: a property of the call, so it is not tried again.

    has_room_now: it failed for want of arena space, and space was made since: then it is tried again.
    awaits_room: it failed for want of arena space that others use: it is tried again after `RoomAwaited`.
    is_starved: a callback input ended before it was complete: it runs again when that input can be had.
    """

    invocation: InvocationId
    worker: WorkerId
    timing: Timing
    at_s: float
    cause: str
    has_room_now: bool = False
    is_starved: bool = False
    awaits_room: bool = False


@dataclass(frozen=True, slots=True)
class RoomAwaited:
    """Invocations that await room may run again; those that do not are left alone."""

    invocations: tuple[InvocationId, ...]
    at_s: float
    cause: str


@dataclass(frozen=True, slots=True)
class InvocationCancelled:
    """A worker confirmed that a cancelled invocation left its lane."""

    invocation: InvocationId
    worker: WorkerId
    timing: Timing
    at_s: float
    cause: str


@dataclass(frozen=True, slots=True)
class ResultsPinned:
    """Somebody outside (a node result, the output cache) holds these results until unpinned; counts add up."""

    invocations: tuple[InvocationId, ...]
    at_s: float
    cause: str


@dataclass(frozen=True, slots=True)
class ResultsUnpinned:
    """One earlier pin of each of these results is over."""

    invocations: tuple[InvocationId, ...]
    at_s: float
    cause: str


@dataclass(frozen=True, slots=True)
class RunClosed:
    """A run ended (success, error, interrupt): what it has waiting is dropped, what runs is cancelled.

    Results pinned from outside survive; with them the specs that could rebuild them.
    """

    run: PromptId
    at_s: float
    cause: str


Event = (
    WorkerJoined
    | WorkerLost
    | InvocationSubmitted
    | InvocationPublished
    | InvocationFinished
    | InvocationFailed
    | RoomAwaited
    | InvocationCancelled
    | ResultsPinned
    | ResultsUnpinned
    | RunClosed
)
