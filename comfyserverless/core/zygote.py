"""Define the lines between the control process and the zygote that forks its workers.

The control process starts `python -m comfyserverless.host` with `ZygoteOptions` as its only argument
(JSON). The zygote imports torch and the functions once, says `Ready`, and then forks one worker, or the node
host, for each `SpawnWorker` line. Requests go to its stdin, reports come from its stdout: one JSON object a
line, UTF-8, tagged by `op`. Nothing else is written to stdout; logs go to stderr. The end of stdin means
`StopZygote`. Version 1.
"""

from __future__ import annotations

from typing import Union

import msgspec

from comfyserverless.core.hosting import HostPlan
from comfyserverless.core.ids import WorkerId


class ZygoteOptions(msgspec.Struct, frozen=True):
    """Control -> zygote, as argv[1]: what must be known before torch is imported.

    threads: torch threads of each worker, 0 means the machine's cores less one (at least 1); device: `auto`
    (CUDA when there is one), `cpu` or `cuda`; log_level, log_format: as in `log_lines`.
    """

    threads: int = 0
    device: str = "auto"
    log_level: str = "INFO"
    log_format: str = "text"


class IslandPlace(msgspec.Struct, frozen=True):
    """Say which island a worker belongs to: `ranks` workers that start together, this one being `rank`.

    name: no two islands, also one after the other, have the same.
    """

    name: str
    rank: int
    ranks: int


class SpawnWorker(msgspec.Struct, frozen=True, tag_field="op", tag="spawn"):
    """Control -> zygote: fork one worker, which dials in to `link`.

    token: what the worker says in its Hello. link: `unix:/path/of/socket` (websocket at path /link) or
    `ws://host:port/path`. arena_path: file to create; the worker deletes it on a clean exit, the zygote
    once the worker is gone. arena_fallback_path: used instead if arena_path's file system has less room
    than arena_bytes (empty: never). threads: torch threads, 0 keeps the zygote's. weights_bytes: budget of
    weights on the device, 0 lets the worker choose; host_bytes: of those kept in host memory beside that;
    resident: how weights leave memory, a name of residency.policy; profiles_path: folder for measured times of
    layers, empty for none. device_index: of a CUDA device, None on CPU.
    arena_populate: touch all pages of the arena at the start. island: where it is to keep its arena in GPU
    memory together with others, if they all can (None: never); it then says JoinIsland before its Hello. host:
    be the node host, which loads these packs, and no worker.
    """

    worker: WorkerId
    token: str
    link: str
    arena_path: str
    arena_bytes: int
    threads: int = 0
    weights_bytes: int = 0
    host_bytes: int = 0
    resident: str = "layers"
    profiles_path: str = ""
    device_index: int | None = None
    arena_populate: bool = False
    arena_fallback_path: str = ""
    island: IslandPlace | None = None
    host: HostPlan | None = None


class StopZygote(msgspec.Struct, frozen=True, tag_field="op", tag="stop"):
    """Control -> zygote: end all workers (SIGTERM, then SIGKILL) and exit 0."""


class Ready(msgspec.Struct, frozen=True, tag_field="op", tag="ready"):
    """Zygote -> control, once, first line: imports are done, which took `import_s` seconds."""

    pid: int
    import_s: float


class Spawned(msgspec.Struct, frozen=True, tag_field="op", tag="spawned"):
    """Zygote -> control: the worker's process exists; it has not dialled in yet."""

    worker: WorkerId
    pid: int


class Exited(msgspec.Struct, frozen=True, tag_field="op", tag="exited"):
    """Zygote -> control: a worker's process is over and reaped.

    status: exit code, or minus the number of the signal that ended it (-9 after `kill -9`).
    """

    worker: WorkerId
    pid: int
    status: int


ToZygote = Union[SpawnWorker, StopZygote]  # noqa: UP007
FromZygote = Union[Ready, Spawned, Exited]  # noqa: UP007

_encoder = msgspec.json.Encoder()
_to_zygote = msgspec.json.Decoder(ToZygote)
_from_zygote = msgspec.json.Decoder(FromZygote)


def encode_line(message: ToZygote | FromZygote) -> bytes:
    """Encode one message as a line, newline included."""
    return _encoder.encode(message) + b"\n"


def decode_request(line: bytes | str) -> ToZygote:
    """Decode a line that the zygote reads. Raises msgspec.DecodeError for any other line."""
    return _to_zygote.decode(line)


def decode_report(line: bytes | str) -> FromZygote:
    """Decode a line that the zygote wrote. Raises msgspec.DecodeError for any other line."""
    return _from_zygote.decode(line)
