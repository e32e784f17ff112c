"""Show records of prompts in ComfyUI's shapes: queue items, history, jobs. Pure.

Job lists are validated strictly by the page, all or nothing: fields without a value are left out.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from comfyserverless.control.views import RunFailed, RunRecord, RunStatus
from comfyserverless.core.ids import NodeId
from comfyserverless.server.wire import lifecycle_message

JOB_STATUSES = ("pending", "in_progress", "completed", "failed", "cancelled")

_STATUS = {
    RunStatus.PENDING: "pending",
    RunStatus.RUNNING: "in_progress",
    RunStatus.SUCCESS: "completed",
    RunStatus.ERROR: "failed",
    RunStatus.INTERRUPTED: "cancelled",
    RunStatus.LOST: "failed",
}
_SHOWN_TEXT_CHARS = 1024
_FOLDERS = ("output", "temp", "input")
_NOT_ITEMS = ("animated", "text")
_VISUAL_KEYS = frozenset({"images", "gifs", "video", "videos", "audio", "3d"})
_3D_SUFFIXES = (".glb", ".gltf", ".obj", ".fbx", ".stl", ".usdz", ".ply", ".splat", ".ksplat", ".spz")
_VISUAL_SUFFIXES = (
    *_3D_SUFFIXES,
    *(".png", ".jpg", ".jpeg", ".webp", ".gif", ".avif", ".bmp", ".tiff", ".svg"),
    *(".mp4", ".webm", ".mov", ".mkv", ".avi"),
    *(".mp3", ".wav", ".ogg", ".opus", ".flac", ".m4a"),
)
_TEXT_SUFFIXES = (".txt", ".md", ".json", ".csv")


def shown_number(number: float) -> float | int:
    """Show whole priorities as integers, as clients know them."""
    return int(number) if float(number).is_integer() else number


def queue_item(record: RunRecord) -> list[Any]:
    """Return the five-element form of `/queue` and of history's `prompt`."""
    number = shown_number(record.number)
    return [number, record.prompt_id, record.prompt, record.extra_data, list(record.targets)]


def execution_status(record: RunRecord) -> dict[str, Any]:
    """Return the status object of history."""
    is_success = record.status is RunStatus.SUCCESS
    return {
        "status_str": "success" if is_success else "error",
        "completed": is_success,
        "messages": [list(lifecycle_message(event)) for event in record.messages],
    }


def history_record(record: RunRecord) -> dict[str, Any]:
    """Return the history entry of an ended prompt."""
    return {
        "prompt": queue_item(record),
        "outputs": record.outputs,
        "status": execution_status(record),
        "meta": {node: _meta(record, node) for node in record.outputs},
    }


def _meta(record: RunRecord, node: NodeId) -> dict[str, Any]:
    """Say where a node with outputs belongs."""
    origin = record.origins.get(node)
    return {
        "node_id": node,
        "display_node": node if origin is None else origin.display,
        "parent_node": None if origin is None else origin.parent,
        "real_node_id": node if origin is None else origin.real,
    }


def run_statuses(words: Collection[str]) -> frozenset[RunStatus]:
    """Return what the status words of the jobs routes stand for."""
    return frozenset(status for status, word in _STATUS.items() if word in words)


def job_status(record: RunRecord) -> str:
    """Return the status word of the jobs routes."""
    return _STATUS[record.status]


def job_summary(record: RunRecord) -> dict[str, Any]:
    """Return the list form of a job."""
    items = list(_items(record))
    error = next((event for event in record.messages if isinstance(event, RunFailed)), None)
    is_over = record.ended_ms is not None
    job = {
        "id": record.prompt_id,
        "status": job_status(record),
        "priority": shown_number(record.number),
        "create_time": record.created_ms,
        "execution_start_time": record.started_ms,
        "execution_end_time": record.ended_ms,
        "execution_error": None if error is None else lifecycle_message(error)[1],
        "outputs_count": len(items) if is_over else None,
        "previewable_outputs_count": sum(_is_visual(item) for item in items) if is_over else None,
        "preview_output": _preview_output(record, items),
        "workflow_id": record.workflow,
    }
    return {key: value for key, value in job.items() if value is not None}


def job_detail(record: RunRecord) -> dict[str, Any]:
    """Return the single form of a job."""
    detail = {
        **job_summary(record),
        "workflow": {"prompt": record.prompt, "extra_data": record.extra_data},
    }
    if record.ended_ms is not None:
        detail |= {"outputs": record.outputs, "execution_status": execution_status(record)}
    return detail


def _items(record: RunRecord) -> Iterator[dict[str, Any]]:
    """Yield the output files of a prompt, each with nodeId and mediaType."""
    for node, ui in record.outputs.items():
        for key, values in ui.items():
            if key in _NOT_ITEMS or not isinstance(values, (list, tuple)):
                continue
            for value in values:
                item = _file_item(value)
                if item is not None:
                    yield {**item, "nodeId": str(node), "mediaType": key}


def _file_item(value: Any) -> dict[str, Any] | None:
    """Read one ui value as a file; None if it is something else."""
    if isinstance(value, str) and value.lower().endswith(_3D_SUFFIXES):
        folder, name = os.path.split(value)
        return {"filename": name, "subfolder": folder, "type": "output"}
    if not isinstance(value, Mapping) or not isinstance(value.get("filename"), str):
        return None
    if value.get("type", "output") not in _FOLDERS:
        return None
    return dict(value)


def _is_visual(item: Mapping[str, Any]) -> bool:
    """Tell whether the page can render an item: by its key, its format, or its file's extension."""
    if item["mediaType"] in _VISUAL_KEYS:
        return True
    kind = str(item.get("format", "")).partition("/")[0]
    return kind in ("image", "video", "audio") or item["filename"].lower().endswith(_VISUAL_SUFFIXES)


def _preview_output(record: RunRecord, items: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Choose what the queue panel shows: saved pictures, then other pictures, saved texts, raw text."""
    visual = [item for item in items if _is_visual(item)]
    saved = [item for item in visual if item.get("type") == "output"]
    texts = [item for item in items if item["filename"].lower().endswith(_TEXT_SUFFIXES)]
    for candidates in (saved, visual, texts):
        if candidates:
            return candidates[0]
    return _raw_text(record)


def _raw_text(record: RunRecord) -> dict[str, Any] | None:
    for node, ui in record.outputs.items():
        texts = ui.get("text")
        if not texts:
            continue
        text = str(texts[0])
        is_cut = len(text) > _SHOWN_TEXT_CHARS
        shown = {"content": text[:_SHOWN_TEXT_CHARS], "nodeId": str(node), "mediaType": "text"}
        return {**shown, "truncated": True} if is_cut else shown
    return None
