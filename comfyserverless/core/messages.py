"""Define the messages of a worker link: one websocket, one msgpack message a frame, no tensor bytes.

The worker dials in, says Hello with the token it was started with, and gets Welcome. Every struct says
who sends it. Value trees travel pre-encoded (`values.encode`) in `bytes` fields.
"""

from __future__ import annotations

import msgspec

from comfyserverless.core.ids import InvocationId, TensorId, WorkerId
from comfyserverless.core.memory import MemoryPicture
from comfyserverless.core.modelfn import FunctionSpec, Lane
from comfyserverless.core.zygote import IslandPlace

LINK_VERSION = 6


class DeviceInfo(msgspec.Struct, frozen=True):
    """One compute device of a worker, as `/system_stats` shows it; sizes in bytes."""

    name: str
    kind: str
    index: int | None
    total_bytes: int
    free_bytes: int


class Timing(msgspec.Struct, frozen=True):
    """Measured seconds of one invocation: weights made ready, function run, inputs pulled from other arenas.

    waited_s: for elements of callback inputs that were not made yet; nobody's service, so it is only charged
    while others want the lane.
    """

    load_s: float = 0.0
    compute_s: float = 0.0
    transfer_s: float = 0.0
    waited_s: float = 0.0

    def total_s(self) -> float:
        """Return the seconds of service."""
        return self.load_s + self.compute_s + self.transfer_s


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Worker -> control, first message: who it is and what it can run."""

    version: int
    worker: WorkerId
    token: str
    pid: int
    lanes: dict[Lane, int]
    functions: tuple[FunctionSpec, ...]
    device: DeviceInfo
    torch_version: str
    arena_path: str
    arena_bytes: int


class JoinIsland(msgspec.Struct, frozen=True, tag="join_island"):
    """Worker -> control, before Hello, of a worker that was started with an island.

    uid: of rank 0 only, what all need to find each other; problem: why it cannot take part (empty: it can).
    """

    worker: WorkerId
    token: str
    place: IslandPlace
    uid: bytes
    problem: str


class IslandReady(msgspec.Struct, frozen=True, tag="island_ready"):
    """Control -> worker, answer to JoinIsland: start with this uid; if it is empty, use shared memory.

    reason: the problem of the first worker that has one.
    """

    uid: bytes
    reason: str


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """Control -> worker, answer to Hello: the worker may get work from now on."""

    version: int


class PeerArena(msgspec.Struct, frozen=True, tag="peer_arena"):
    """Control -> worker: another worker's arena exists at this path (empty path: it is gone, unmap it)."""

    worker: WorkerId
    path: str
    size_bytes: int


class CheckpointOrder(msgspec.Struct, frozen=True):
    """Where to write a copy of a result that outlives the worker: an existing file, if it fits the limit."""

    path: str
    limit_bytes: int


class RunInvocation(msgspec.Struct, frozen=True, tag="run"):
    """Control -> worker: run one invocation in its lane, in the order of arrival.

    publishes: somebody may want the elements of its callback outputs before it is done. save: write a
    checkpoint of its result. restore: a checkpoint to read the result from instead of running it; there are no
    inputs then.
    """

    invocation: InvocationId
    function: str
    lane: Lane
    inputs: bytes
    publishes: bool = False
    save: CheckpointOrder | None = None
    restore: str = ""


class CancelInvocation(msgspec.Struct, frozen=True, tag="cancel"):
    """Control -> worker: do not start it; end one that runs at its next layer (answer: InvocationCancelled)."""

    invocation: InvocationId


class FreeTensors(msgspec.Struct, frozen=True, tag="free"):
    """Control -> worker: nobody needs these tensors any more."""

    tensors: tuple[TensorId, ...]


class UnloadModels(msgspec.Struct, frozen=True, tag="unload"):
    """Control -> worker: drop all cached weights once the running invocation is over (`POST /free`)."""


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """Control -> worker: finish what runs, remove the arena, exit 0."""


class InvocationPublished(msgspec.Struct, frozen=True, tag="published"):
    """Worker -> control: it has begun, and will publish the elements of this output.

    publication: for the consumers' PublishedRef; id: frees it, once it has ended and nobody reads it any more.
    """

    invocation: InvocationId
    port: str
    id: TensorId
    publication: bytes


class InvocationDone(msgspec.Struct, frozen=True, tag="done"):
    """Worker -> control: the outputs, by port, as an encoded value tree whose tensors are in arenas.

    checkpoint_bytes: size of the checkpoint that was written, 0 for none; checkpoint_s: the part of compute_s
    that it took. shows: an InvocationShown follows.
    """

    invocation: InvocationId
    outputs: bytes
    timing: Timing
    checkpoint_bytes: int = 0
    checkpoint_s: float = 0.0
    shows: bool = False


class InvocationShown(msgspec.Struct, frozen=True, tag="shown"):
    """Worker -> control, once after each InvocationDone that `shows`, in their order: a picture of the result.

    image: the bytes of a file; empty if there is none, since it failed or others came faster.
    """

    invocation: InvocationId
    image: bytes


class InvocationFailed(msgspec.Struct, frozen=True, tag="failed"):
    """Worker -> control: the function raised; exception_type is dotted (built-ins bare)."""

    invocation: InvocationId
    exception_type: str
    message: str
    traceback: tuple[str, ...]
    timing: Timing


class InvocationCancelled(msgspec.Struct, frozen=True, tag="cancelled"):
    """Worker -> control: a cancelled invocation left its lane, without outputs."""

    invocation: InvocationId
    timing: Timing


class WorkerStats(msgspec.Struct, frozen=True, tag="stats"):
    """Worker -> control, every few seconds: memory now; also the sign of life.

    memory: the details; its models are None if they are the same as in the message before.
    """

    device_free_bytes: int
    resident_bytes: int
    arena_used_bytes: int
    arena_bytes: int
    weights_bytes: int
    memory: MemoryPicture | None = None


class HostQuestion(msgspec.Struct, frozen=True, tag="question"):
    """Control -> node host: answer this, beside what runs. payload: value tree; kinds are those of
    `core.hosting`."""

    id: int
    kind: str
    payload: bytes


class HostAnswer(msgspec.Struct, frozen=True, tag="answer"):
    """Node host -> control, once for each HostQuestion; error: why there is no payload, empty if there is
    one."""

    id: int
    payload: bytes
    error: str = ""


class HostRequest(msgspec.Struct, frozen=True, tag="request"):
    """Node host -> control: do this for an invocation that runs here; kinds are those of
    `host.bridge.Bridge.ask`."""

    id: int
    invocation: InvocationId
    kind: str
    payload: bytes


class HostReply(msgspec.Struct, frozen=True, tag="reply"):
    """Control -> node host, once for each HostRequest, unless its invocation ended before.

    error_type: dotted, empty if it went well; error: the message.
    """

    id: int
    payload: bytes
    error_type: str = ""
    error: str = ""


class HostNotice(msgspec.Struct, frozen=True, tag="notice"):
    """Node host -> control, no answer: something to show; kinds are those of `core.hosting`."""

    kind: str
    payload: bytes
    invocation: InvocationId | None = None


ToWorker = (
    HostQuestion
    | HostReply
    | Welcome
    | IslandReady
    | PeerArena
    | RunInvocation
    | CancelInvocation
    | FreeTensors
    | UnloadModels
    | Shutdown
)
FromInvocation = InvocationPublished | InvocationDone | InvocationShown | InvocationFailed | InvocationCancelled
FromWorker = HostAnswer | HostRequest | HostNotice | Hello | JoinIsland | FromInvocation | WorkerStats
