"""Define the record of one invocation and of one run, and the literal table of transitions.

An invocation is *open* while it is waiting, ready, running or cancelling; its inputs are kept for it that long.
A released invocation has no result (dropped, lost or given up) but its spec is kept: the lineage that can
rebuild it. An invocation is *saved* while a checkpoint of its result exists: whenever it is open, the result
is read from there, and its inputs do not matter to it. It is a *suspect* from the loss of a worker that ran
it until it is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from comfyserverless.core.errors import InvariantError
from comfyserverless.core.ids import InvocationId, PromptId, TenantId, WorkerId
from comfyserverless.scheduling.events import InvocationSpec
from comfyserverless.scheduling.instructions import Instruction

Phase = Literal[
    "submitted",
    "waiting",
    "ready",
    "running",
    "cancelling",
    "done",
    "released",
    "failed",
    "abandoned",
    "forgotten",
]

Fate = Literal["release", "retry", "fail"]
"""What becomes of a cancelling invocation when it leaves its lane without a result."""

_PRIORITY_BITS = 48
"""A level of priority outweighs so many submissions as this power of two."""

OPEN_PHASES: frozenset[Phase] = frozenset({"waiting", "ready", "running", "cancelling"})
BROKEN_PHASES: frozenset[Phase] = frozenset({"failed", "abandoned"})

TRANSITIONS: Mapping[tuple[Phase, Phase], str] = MappingProxyType(
    {
        ("submitted", "waiting"): "a lowering emitted it",
        ("submitted", "failed"): "an input had failed before it was emitted",
        ("waiting", "ready"): "its last missing input became available",
        ("waiting", "failed"): "an input can never be made",
        ("waiting", "released"): "nobody wants it any more",
        ("ready", "waiting"): "an input was lost",
        ("ready", "running"): "dispatched",
        ("ready", "failed"): "the producer of a callback input failed",
        ("ready", "released"): "nobody wants it any more",
        ("running", "done"): "the worker finished it",
        ("running", "failed"): "the function raised",
        ("running", "abandoned"): "it lost its worker too often",
        ("running", "waiting"): "its worker or an input was lost",
        ("running", "cancelling"): "nobody wants it any more, or a callback input will not come",
        ("cancelling", "done"): "it finished before the cancellation reached it",
        ("cancelling", "released"): "it left its lane",
        ("cancelling", "waiting"): "it left its lane and is wanted",
        ("cancelling", "failed"): "it left its lane after a producer had failed",
        ("cancelling", "abandoned"): "it lost its worker too often",
        ("done", "released"): "its result was dropped or lost",
        ("released", "waiting"): "its result is wanted again",
        ("released", "failed"): "its result is wanted again and an input can never be made",
        ("released", "forgotten"): "neither its result nor its lineage can be needed",
        ("failed", "forgotten"): "its run is closed",
        ("abandoned", "forgotten"): "its run is closed",
    }
)


@dataclass(slots=True, eq=False)
class Turn:
    """One handling of an event: its time and cause, and the instructions so far.

    recalled: what was sent back to wait; ended: what is no longer open, of runs that are closed.
    """

    at_s: float
    cause: str
    out: list[Instruction] = field(default_factory=list)
    recalled: list[InvocationRecord] = field(default_factory=list)
    ended: list[InvocationRecord] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class RunRecord:
    """One run. longest_s: length of the longest path of estimates through what it has submitted so far.

    place: how many runs of its tenant were begun before it, for a policy that counts them.
    """

    id: PromptId
    tenant: TenantId
    opened_at_s: float
    longest_s: float = 0.0
    is_closed: bool = False
    place: int | None = None
    #: all and only its invocations that are not forgotten, in submission order
    members: dict[InvocationId, InvocationRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lease:
    """Where an invocation runs, since when, and what was charged; missing: weights to be loaded there.

    queued_s: how long it was ready before; estimate_s: of service; by_others_s: for how long others than its
    tenant had wanted the lane when it started.
    """

    worker: WorkerId
    started_at_s: float
    queued_s: float
    estimate_s: float
    by_others_s: float
    missing: tuple[str, ...]


@dataclass(slots=True, eq=False)
class InvocationRecord:
    """One invocation. needs: producers that must be done first; overlaps: producers that must at least publish.

    head_s: estimated seconds of the longest path from the start of its run to its own start.
    """

    spec: InvocationSpec
    order: int
    run: RunRecord
    needs: tuple[InvocationRecord, ...]
    overlaps: tuple[InvocationRecord, ...]
    estimate_s: float
    head_s: float
    #: its place among those of its tenant: higher priority first, then by order
    rank: int = field(init=False)
    phase: Phase = "submitted"
    #: who outside holds its result; the first pin is the lowering's that emitted it
    pins: int = 1
    #: when it last got ready
    ready_at_s: float = 0.0
    #: number of inputs that are not available, and of rooms; kept while waiting or ready
    blocked: int = 0
    #: losses of its worker while it ran that may be its fault, since it was last done
    attempts: int = 0
    #: a checkpoint of its result exists; changes only while it is not open
    is_saved: bool = False
    #: steps that are to be taken again if its result is lost: its own and those before, up to a checkpoint
    steps_at_risk: int = 0
    #: number of consumers and followers in an open phase
    open_consumers: int = 0
    is_materialised: bool = False
    #: its result can be had element by element; only while running
    is_publishing: bool = False
    has_lost_inputs: bool = False
    #: it found an arena full, and is not to run before it is told
    awaits_room: bool = False
    fate: Fate = "release"
    lease: Lease | None = None
    holders: tuple[WorkerId, ...] = ()
    #: all and only unforgotten invocations that name it in needs
    consumers: dict[InvocationId, InvocationRecord] = field(default_factory=dict)
    #: all and only unforgotten invocations that name it in overlaps
    followers: dict[InvocationId, InvocationRecord] = field(default_factory=dict)
    _story: deque[tuple[float, Phase, str]] = field(default_factory=lambda: deque(maxlen=16))

    def __post_init__(self) -> None:
        self.rank = self.order - (self.spec.priority << _PRIORITY_BITS)

    @property
    def inputs(self) -> tuple[InvocationRecord, ...]:
        """Return all producers, hard ones first."""
        return self.needs + self.overlaps if self.overlaps else self.needs

    def feeds_followers(self) -> bool:
        """Tell whether what may overlap with it may start: a running record holds a lane and has begun."""
        return self.is_publishing or self.phase == "done"

    def remaining_s(self) -> float:
        """Return the critical path of its run from here on, as far as it is known."""
        return self.run.longest_s - self.head_s

    def enter(self, phase: Phase, turn: Turn) -> None:
        """Change the phase. Raises InvariantError for a pair that the table does not name."""
        if (self.phase, phase) not in TRANSITIONS:
            raise self.error(f"{self.spec.id} cannot go from {self.phase} to {phase} (cause {turn.cause})")
        self.phase = phase
        self._story.append((turn.at_s, phase, turn.cause))

    def error(self, message: str) -> InvariantError:
        """Build the error that tells this invocation's recent story."""
        return InvariantError(
            message, tuple(f"{at_s:.6f} s: {to} ({cause})" for at_s, to, cause in self._story)
        )
