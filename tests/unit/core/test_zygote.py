from __future__ import annotations

import json

import msgspec
import pytest

from comfyserverless.core.ids import WorkerId
from comfyserverless.core.zygote import (
    Exited,
    FromZygote,
    Ready,
    Spawned,
    SpawnWorker,
    StopZygote,
    ToZygote,
    decode_report,
    decode_request,
    encode_line,
)

SPAWN = SpawnWorker(WorkerId("w0.1"), "token", "unix:/run/link", "/dev/shm/a", 1 << 20, threads=2)


@pytest.mark.parametrize("request_", [SPAWN, StopZygote()])
def test_request_survives_its_line(request_: ToZygote) -> None:
    line = encode_line(request_)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode_request(line) == request_


@pytest.mark.parametrize(
    "report", [Ready(7, 3.5), Spawned(WorkerId("w0.1"), 8), Exited(WorkerId("w0.1"), 8, -9)]
)
def test_report_survives_its_line(report: FromZygote) -> None:
    assert decode_report(encode_line(report)) == report


def test_lines_are_json_with_the_operation_in_op() -> None:
    assert json.loads(encode_line(SPAWN))["op"] == "spawn"
    short = b'{"op":"spawn","worker":"w1.0","token":"t","link":"ws://h/link","arena_path":"/a","arena_bytes":5}'
    request = decode_request(short)
    assert isinstance(request, SpawnWorker)
    assert (request.threads, request.device_index, request.arena_fallback_path) == (0, None, "")


@pytest.mark.parametrize("line", [b"hello", b"{}", b'{"op":"spawned","worker":"w","pid":1}'])
def test_line_of_another_kind_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_request(line)
