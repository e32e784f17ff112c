"""Describe what happened in a run: its time, files, inputs and faults, in the words of ComfyUI's reports."""

from __future__ import annotations

import os
import time
import traceback
from collections import deque
from typing import Any

from comfyserverless.control.files import FolderPaths
from comfyserverless.core.errors import ComfyServerlessError, ModelFileError, WorkerError
from comfyserverless.core.ids import InvocationId, NodeId
from comfyserverless.core.values import outputs_in
from comfyserverless.graph.declaration import FileChoices
from comfyserverless.graph.lowering import NodeResult
from comfyserverless.graph.plan import Constant, Link, Plan, PlanNode

MODEL_FILE_ERROR = f"{ModelFileError.__module__}.{ModelFileError.__qualname__}"


def now_ms() -> int:
    """Return the Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


def mentions(result: NodeResult) -> tuple[InvocationId, ...]:
    """List the invocations whose results a node's values mention, in first-mention order."""
    found = (output.invocation for value in result.outputs for output in outputs_in(value))
    return tuple(dict.fromkeys(found))


def shown_files(files: FolderPaths, result: NodeResult) -> list[str]:
    """List the paths of the files that a result's ui shows."""
    items = [item for items in (result.ui or {}).values() for item in items if isinstance(item, dict)]
    return [
        os.path.join(files.base(item["type"]), item["subfolder"], item["filename"])
        for item in items
        if "filename" in item
    ]


def shown_inputs(node: PlanNode) -> dict[str, list[Any]]:
    """Format inputs as ComfyUI's error report shows them: literals as they are, links by their source."""
    return {
        name: [f"output {source.slot} of node {source.source}" if isinstance(source, Link) else source.value]
        for name, source in node.inputs.items()
    }


def blamed_node(plan: Plan, node: NodeId, error: BaseException) -> NodeId:
    """Return the node to show an error at: for a bad model file the loader upstream that names the file.

    Weights are read when they are first used, often nodes later; the user has to change the loader.
    """
    if not isinstance(error, WorkerError) or error.exception_type != MODEL_FILE_ERROR:
        return node
    seen, queue = {node}, deque([node])
    while queue:
        current = plan.nodes[queue.popleft()]
        if _names_file(current, str(error)):
            return current.id
        for source in current.inputs.values():
            if isinstance(source, Link) and source.source not in seen:
                seen.add(source.source)
                queue.append(source.source)
    return node


def _names_file(node: PlanNode, text: str) -> bool:
    """Tell whether a text is about one of a node's model files: it starts with the path and a colon."""
    files = [spec.name for spec in node.declaration.inputs if isinstance(spec.type, FileChoices)]
    given = [node.inputs.get(name) for name in files]
    return any(isinstance(each, Constant) and f"{os.sep}{each.value}:" in text for each in given)


def type_name(error: BaseException) -> str:
    """Name an error's type as ComfyUI does: dotted, built-ins bare; a worker's error by its original type."""
    if isinstance(error, WorkerError):
        return error.exception_type
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def frames(error: BaseException) -> tuple[str, ...]:
    """Format the frames of an error: the worker's own, none for one of ours that speaks for itself."""
    if isinstance(error, WorkerError):
        return error.traceback
    return () if isinstance(error, ComfyServerlessError) else tuple(traceback.format_tb(error.__traceback__))
