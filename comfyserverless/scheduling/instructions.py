"""List what the scheduling state asks for: imperative, immutable, carried out in order by control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from comfyserverless.core.ids import InvocationId, WorkerId
from comfyserverless.core.messages import Timing
from comfyserverless.core.modelfn import Lane

Outcome = Literal["done", "failed", "cancelled", "lost"]
"""How an invocation left its lane."""


@dataclass(frozen=True, slots=True)
class StartInvocation:
    """Resolve the invocation's inputs and send it to the worker.

    is_saved: have a checkpoint of its result written; is_restored: have the result read from its checkpoint
    instead of running it, its inputs may be gone.
    """

    invocation: InvocationId
    worker: WorkerId
    lane: Lane
    cause: str
    is_saved: bool = False
    is_restored: bool = False


@dataclass(frozen=True, slots=True)
class CancelInvocation:
    """Tell the worker that the result of a running invocation is no longer wanted."""

    invocation: InvocationId
    worker: WorkerId
    cause: str


@dataclass(frozen=True, slots=True)
class DropResult:
    """Forget the result of an invocation and free its tensors: nobody can need it any more (or it is lost)."""

    invocation: InvocationId
    cause: str


@dataclass(frozen=True, slots=True)
class ForgetInvocation:
    """Forget the invocation altogether, its checkpoint too: neither result nor spec can be needed again."""

    invocation: InvocationId
    cause: str


@dataclass(frozen=True, slots=True)
class DropCheckpoint:
    """Remove the checkpoint of a result: a later one replaces it, its run is over, or it cannot be read."""

    invocation: InvocationId
    cause: str


@dataclass(frozen=True, slots=True)
class AbandonInvocation:
    """Fail an invocation that lost its worker too often (a poison call must not loop)."""

    invocation: InvocationId
    attempts: int
    cause: str


@dataclass(frozen=True, slots=True)
class RecordService:
    """Write down one stay of an invocation in a lane, as its tenant was charged for it.

    queued_s: since all its inputs were there, until it got the lane; charged_s: seconds of service, whatever
    the tenant's weight: the timing's total and what of its waited_s is charged (see `charges`), and of a stay
    that ended with the worker the seconds that count.
    """

    invocation: InvocationId
    worker: WorkerId
    outcome: Outcome
    queued_s: float
    held_s: float
    timing: Timing
    charged_s: float
    cause: str


Instruction = (
    StartInvocation
    | CancelInvocation
    | DropResult
    | DropCheckpoint
    | ForgetInvocation
    | AbandonInvocation
    | RecordService
)
