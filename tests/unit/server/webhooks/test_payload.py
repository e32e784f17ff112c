"""Who is called learns how a prompt ended, what came of it, and how long it took."""

from __future__ import annotations

import json

from comfyserverless.control.views import RunFailed, RunRecord, RunStatus
from comfyserverless.core.ids import NodeId
from comfyserverless.server.webhooks.payload import MAX_BODY_BYTES, payload
from tests.support.records import NODE, PICTURE, ended, waiting


def failed(message: str = "boom\n") -> RunRecord:
    record = ended(waiting("p"), status=RunStatus.ERROR)
    record.messages[-1] = RunFailed(
        record.prompt_id,
        record.tenant,
        record.client_id,
        node=NodeId("3"),
        node_type="KSampler",
        executed=(),
        exception_message=message,
        exception_type="ValueError",
        traceback=(),
        current_inputs={},
        current_outputs=(),
        at_ms=3_000,
    )
    return record


def test_success_tells_outputs_and_timings() -> None:
    assert json.loads(payload(ended(waiting("p")))) == {
        "prompt_id": "p",
        "status": "completed",
        "outputs": {NODE: {"images": [PICTURE]}},
        "error": None,
        "timings": {
            "created_ms": 1_000,
            "started_ms": 2_000,
            "ended_ms": 3_000,
            "queued_s": 1.0,
            "execution_s": 1.0,
        },
    }


def test_failure_tells_the_error_as_the_websocket_does() -> None:
    told = json.loads(payload(failed()))
    assert told["status"] == "failed"
    assert told["error"]["exception_message"] == "boom\n"
    assert told["error"]["node_id"] == "3"


def test_interruption_is_a_cancellation() -> None:
    told = json.loads(payload(ended(waiting("p"), status=RunStatus.INTERRUPTED)))
    assert (told["status"], told["error"]) == ("cancelled", None)


def test_huge_outputs_and_errors_are_left_out() -> None:
    record = failed("x" * 2 * MAX_BODY_BYTES)
    record.outputs = {NODE: {"text": ["y" * MAX_BODY_BYTES]}}
    body = payload(record)
    told = json.loads(body)
    assert len(body) < 1_000
    assert told["is_truncated"]
    assert told["outputs"] == {}
    assert told["error"]["exception_type"] == "ValueError"


def test_prompt_that_never_began_ran_for_no_time() -> None:
    record = ended(waiting("p"))
    record.started_ms = None
    assert json.loads(payload(record))["timings"]["execution_s"] == 0
