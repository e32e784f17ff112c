"""Turn what is variable in a record into bytes and back: what was asked for, and what came of it."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from comfyserverless.control.views import (
    NodesCached,
    RunFailed,
    RunInterrupted,
    RunRecord,
    RunStarted,
    RunSucceeded,
)

log = logging.getLogger(__name__)

_LEVEL = 1
_EVENTS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (RunStarted, NodesCached, RunSucceeded, RunFailed, RunInterrupted)
}


def workflow_id(extra_data: Mapping[str, Any]) -> str | None:
    """Return the id of the page's workflow that was submitted, if it said one."""
    value: Any = extra_data
    for key in ("extra_pnginfo", "workflow", "id"):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else None


def encode_request(record: RunRecord) -> bytes:
    """Pack what was asked for."""
    return _pack([record.prompt, record.extra_data, record.targets])


def decode_request(packed: bytes, record: RunRecord) -> None:
    """Put what was asked for into a record; if it cannot be read, the prompt is empty and the log says so."""
    try:
        prompt, extra_data, targets = _unpack(packed)
        record.prompt, record.extra_data, record.targets = prompt, extra_data, tuple(targets)
    except (zlib.error, ValueError, TypeError) as exc:
        log.error("The stored prompt %s cannot be read: %s", record.prompt_id, exc)


def encode_result(record: RunRecord) -> bytes:
    """Pack what came of a prompt: outputs and messages."""
    messages = [[type(event).__name__, asdict(event)] for event in record.messages]
    return _pack([record.outputs, messages])


def decode_result(packed: bytes, record: RunRecord) -> None:
    """Put what came of a prompt into its record; if it cannot be read, there is none and the log says so."""
    try:
        outputs, messages = _unpack(packed)
        record.messages = [msgspec.convert(fields, _EVENTS[kind]) for kind, fields in messages]
        record.outputs = outputs
    except (zlib.error, ValueError, TypeError, KeyError) as exc:
        log.error("The stored results of prompt %s cannot be read: %s", record.prompt_id, exc)


def _pack(value: Any) -> bytes:
    try:
        text = msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError):  # lone surrogates, and objects that only their text describes
        text = json.dumps(value, default=str).encode()
    return zlib.compress(text, _LEVEL)


def _unpack(packed: bytes) -> Any:
    text = zlib.decompress(packed)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)
