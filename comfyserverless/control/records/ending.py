"""Give prompts that a dead server left the end that their tenants see."""

from __future__ import annotations

from comfyserverless.control.views import (
    RunFailed,
    RunInterrupted,
    RunRecord,
    RunStarted,
    RunStatus,
)
from comfyserverless.core.ids import NodeId

MOST_CRASHES = 2
"""A prompt that was running at so many losses of a server is the likely reason, and is not tried again."""


def end_as_failed(record: RunRecord, at_ms: int) -> None:
    """End a prompt that has taken servers down with it."""
    message = (
        f"The server ended unexpectedly {MOST_CRASHES} times while this prompt was running, so it is not tried"
        " again; running out of memory is the usual reason. Make it smaller, or submit it again to insist"
    )
    _end(record, RunStatus.ERROR, _failure(record, message, "ServerLostError", at_ms))


def end_as_unplanned(record: RunRecord, reason: str, at_ms: int) -> None:
    """End a prompt that was accepted and cannot run any more: a model was removed since, say."""
    message = f"This prompt was accepted earlier and cannot run any more: {reason}"
    _end(record, RunStatus.ERROR, _failure(record, message, "PromptError", at_ms))


def end_as_interrupted(record: RunRecord, at_ms: int) -> None:
    """End a prompt whose user had interrupted it just before the server was lost."""
    node, node_type = _first_node(record)
    event = RunInterrupted(
        record.prompt_id, record.tenant, record.client_id, node, node_type, executed=(), at_ms=at_ms
    )
    _end(record, RunStatus.INTERRUPTED, event)


def _failure(record: RunRecord, message: str, kind: str, at_ms: int) -> RunFailed:
    node, node_type = _first_node(record)
    return RunFailed(
        record.prompt_id,
        record.tenant,
        record.client_id,
        node=node,
        node_type=node_type,
        executed=(),
        exception_message=f"{message}\n",
        exception_type=kind,
        traceback=(),
        current_inputs=None,
        current_outputs=(),
        at_ms=at_ms,
    )


def _first_node(record: RunRecord) -> tuple[NodeId, str]:
    """Return id and class of the node to show an end at: nobody knows which one ran."""
    node = record.targets[0] if record.targets else NodeId("")
    return node, str(record.prompt.get(node, {}).get("class_type", ""))


def _end(record: RunRecord, status: RunStatus, event: RunFailed | RunInterrupted) -> None:
    started_ms = record.started_ms or event.at_ms
    record.messages = [RunStarted(record.prompt_id, record.tenant, record.client_id, started_ms), event]
    record.started_ms, record.ended_ms, record.status = started_ms, event.at_ms, status
