"""Read a workflow or a prompt from the bytes of a file, and tell which of the two it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from comfyserverless.graph.workflows.document import WorkflowError
from comfyserverless.graph.workflows.embedded.texts import FORMATS, embedded_texts
from comfyserverless.graph.workflows.kinds import Kind, kind_of


@dataclass(frozen=True, slots=True)
class WorkflowFile:
    """What a file holds, and the saved workflow beside an API graph if there is one."""

    kind: Kind
    content: dict[str, Any]
    workflow: dict[str, Any] | None = None


def read_file(data: bytes, name: str) -> WorkflowFile:
    """Read a JSON file, or a picture, film, sound or safetensors file that ComfyUI made.

    A prompt that is embedded comes before the workflow: it is exactly what made the file. Raises
    WorkflowError naming the file and what is wrong with it.
    """
    found = embedded_texts(data)
    if found is not None:
        return _from_texts(*found, name)
    try:
        content = json.loads(data, parse_constant=_null)
    except (ValueError, RecursionError):
        raise WorkflowError(f"{name}: neither JSON nor one of {', '.join(FORMATS[:-1])}") from None
    if isinstance(content, dict) and kind_of(content) is None and kind_of(content.get("prompt")) == "api":
        content = content["prompt"]  # the body of a request
    kind = kind_of(content)
    if kind is None:
        raise WorkflowError(f"{name}: JSON, but neither a saved workflow (`nodes`) nor a prompt (`class_type`)")
    return WorkflowFile(kind, content)


def _from_texts(file_kind: str, texts: Mapping[str, str], name: str) -> WorkflowFile:
    prompt, workflow = (_json(texts.get(key)) for key in ("prompt", "workflow"))
    saved = workflow if kind_of(workflow) == "ui" else None
    if prompt is not None and kind_of(prompt) == "api":
        return WorkflowFile("api", prompt, saved)
    if saved is not None:
        return WorkflowFile("ui", saved)
    raise WorkflowError(f"{name}: the {file_kind} file holds neither a prompt nor a workflow of ComfyUI")


def _json(text: str | None) -> dict[str, Any] | None:
    try:
        value = None if text is None else json.loads(text, parse_constant=_null)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _null(_constant: str) -> None:
    """Read NaN and Infinity as null: ComfyUI writes them (`is_changed`), but they are no JSON, nor sent."""
