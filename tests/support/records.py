"""Build records of prompts, and follow them through a database as a server does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from comfyserverless.control.records.base import Opening, Retention
from comfyserverless.control.records.changes import Accepted, Change, Ended, Started
from comfyserverless.control.records.opening import open_file
from comfyserverless.control.records.sqlite import SqliteRecords
from comfyserverless.control.views import RunRecord, RunStarted, RunStatus, RunSucceeded
from comfyserverless.core.ids import DEFAULT_TENANT, NodeId, PromptId, TenantId

NODE = NodeId("2")
PICTURE = {"filename": "a_00001_.png", "subfolder": "", "type": "output"}


def waiting(name: str, number: float = 0, tenant: TenantId = DEFAULT_TENANT, workflow: str = "w") -> RunRecord:
    """Return a prompt that has just been sent; its name is its id."""
    return RunRecord(
        prompt_id=PromptId(name),
        tenant=tenant,
        number=number,
        prompt={"2": {"class_type": "SaveImage", "inputs": {"filename_prefix": name}}},
        extra_data={"extra_pnginfo": {"workflow": {"id": workflow}}},
        targets=(NODE,),
        client_id="c",
        created_ms=1_000,
        workflow=workflow,
    )


def ended(record: RunRecord, at_ms: int = 3_000, status: RunStatus = RunStatus.SUCCESS) -> RunRecord:
    """Let a prompt be over."""
    who = (record.prompt_id, record.tenant, record.client_id)
    record.status, record.started_ms, record.ended_ms = status, 2_000, at_ms
    record.outputs = {NODE: {"images": [PICTURE]}}
    record.messages = [RunStarted(*who, 2_000), RunSucceeded(*who, at_ms)]
    return record


def life(record: RunRecord, at_ms: int = 3_000, status: RunStatus = RunStatus.SUCCESS) -> list[Change]:
    """Return the changes of a prompt from its acceptance to its end."""
    start: list[Change] = [Accepted(record, 1), Started(record.tenant, record.prompt_id, 2_000)]
    return [*start, Ended(ended(record, at_ms, status))]


def open_at(
    path: Path | None, retention: Retention | None = None, now_ms: int = 0
) -> tuple[SqliteRecords, Opening]:
    """Open a database as a server that starts does; path: None for memory."""
    if path is None:
        records = SqliteRecords(None, retention or Retention())
        return records, records.open(now_ms)
    return open_file(path, retention or Retention(), now_ms)


def ids(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of prompts."""
    return [record.prompt_id for record in records]
