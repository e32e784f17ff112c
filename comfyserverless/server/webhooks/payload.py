"""Say what became of a prompt, for who is called by its webhook. Pure."""

from __future__ import annotations

from typing import Any

from comfyserverless.control.views import RunFailed, RunRecord
from comfyserverless.server.bodies import encode_json
from comfyserverless.server.records import job_status
from comfyserverless.server.wire import lifecycle_message

MAX_BODY_BYTES = 1 << 20


def payload(record: RunRecord) -> bytes:
    """Return the body of a call.

    {prompt_id, status, outputs, error, timings}: status is one of the words of `/api/jobs` (completed, failed,
    cancelled), outputs are as in history, error is the `execution_error` or null. Outputs that make it larger
    than 1 MiB are left out, and `is_truncated` says so.
    """
    failure = next((event for event in record.messages if isinstance(event, RunFailed)), None)
    told: dict[str, Any] = {
        "prompt_id": record.prompt_id,
        "status": job_status(record),
        "outputs": record.outputs,
        "error": None if failure is None else lifecycle_message(failure)[1],
        "timings": _timings(record),
    }
    body = encode_json(told)
    if len(body) <= MAX_BODY_BYTES:
        return body
    error = told["error"]
    if error is not None:
        error = {key: error[key] for key in ("prompt_id", "node_id", "node_type", "exception_type")}
    return encode_json({**told, "outputs": {}, "error": error, "is_truncated": True})


def _timings(record: RunRecord) -> dict[str, Any]:
    """Tell when a prompt was accepted, began and ended (Unix milliseconds), and how long it waited and ran."""
    ended_ms = record.ended_ms or record.created_ms
    started_ms = ended_ms if record.started_ms is None else record.started_ms
    return {
        "created_ms": record.created_ms,
        "started_ms": record.started_ms,
        "ended_ms": record.ended_ms,
        "queued_s": max(0, started_ms - record.created_ms) / 1000,
        "execution_s": max(0, ended_ms - started_ms) / 1000,
    }
