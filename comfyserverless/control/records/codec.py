"""Turn what is variable in a record into bytes and back: what was asked for, and what came of it."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from comfyserverless.control.records.packed import PackedJson, from_json, to_json
from comfyserverless.control.views import (
    NodeOrigin,
    NodesCached,
    RunFailed,
    RunInterrupted,
    RunRecord,
    RunStarted,
    RunSucceeded,
)
from comfyserverless.core.ids import NodeId

log = logging.getLogger(__name__)

_LEVEL = 1
_LONGEST_WORKFLOW_ID = 256
_Request = tuple[msgspec.Raw, msgspec.Raw, list[str]]
_EVENTS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (RunStarted, NodesCached, RunSucceeded, RunFailed, RunInterrupted)
}


def workflow_id(extra_data: Mapping[str, Any]) -> str | None:
    """Return the id of the page's workflow that was submitted, if it said one that can be looked up."""
    value: Any = extra_data
    for key in ("extra_pnginfo", "workflow", "id"):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) and len(value) <= _LONGEST_WORKFLOW_ID else None


def encode_request(record: RunRecord) -> bytes:
    """Pack what was asked for."""
    return zlib.compress(to_json([record.prompt, record.extra_data, record.targets]), _LEVEL)


def decode_request(packed: bytes, record: RunRecord) -> None:
    """Put what was asked for into a record; if it cannot be read, the prompt is empty and the log says so."""
    try:
        text = zlib.decompress(packed)
        prompt, extra_data, targets = _take_apart(text)
        record.prompt, record.extra_data = PackedJson(prompt), PackedJson(extra_data)
        record.targets = tuple(NodeId(target) for target in targets)
    except (zlib.error, ValueError, TypeError) as exc:
        log.error("The stored prompt %s cannot be read: %s", record.prompt_id, exc)


def _take_apart(text: bytes) -> tuple[bytes, bytes, list[str]]:
    """Split a request without parsing its objects, unless only Python's parser takes their texts."""
    try:
        prompt, extra_data, targets = msgspec.json.decode(text, type=_Request)
        return bytes(prompt), bytes(extra_data), targets
    except msgspec.DecodeError:
        parsed = from_json(text)
        return to_json(parsed[0]), to_json(parsed[1]), parsed[2]


def encode_result(record: RunRecord) -> bytes:
    """Pack what came of a prompt: outputs, messages, and where outputs of added nodes belong."""
    messages = [[type(event).__name__, asdict(event)] for event in record.messages]
    result: list[Any] = [record.outputs, messages]
    if record.origins:
        result.append({node: asdict(origin) for node, origin in record.origins.items()})
    try:
        text = to_json(result)
    except (TypeError, ValueError):  # what a node shows should be JSON; its text is better than no history
        text = json.dumps(result, default=str).encode()
    return zlib.compress(text, _LEVEL)


def decode_result(packed: bytes, record: RunRecord) -> None:
    """Put what came of a prompt into its record; if it cannot be read, there is none and the log says so."""
    try:
        outputs, messages, *more = from_json(zlib.decompress(packed))
        origins = more[0] if more else {}
        record.origins = msgspec.convert(origins, dict[NodeId, NodeOrigin])
        record.messages = [msgspec.convert(fields, _EVENTS[kind]) for kind, fields in messages]
        record.outputs = outputs
    except (zlib.error, ValueError, TypeError, KeyError) as exc:
        log.error("The stored results of prompt %s cannot be read: %s", record.prompt_id, exc)
