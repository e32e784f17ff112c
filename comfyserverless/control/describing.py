"""Describe what happened in a run: its time, files, inputs and faults, in the words of ComfyUI's reports."""

from __future__ import annotations

import os
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from comfyserverless.control.files import FolderPaths
from comfyserverless.core.errors import ComfyServerlessError, ModelFileError, WorkerError
from comfyserverless.core.ids import InvocationId, NodeId
from comfyserverless.core.values import ObjectRef, Output, TensorRef, Value, outputs_in, transform
from comfyserverless.graph.declaration import FileChoices
from comfyserverless.graph.frontier import Graph
from comfyserverless.graph.jsonsafe import brief, json_safe
from comfyserverless.graph.lowering import Blocked, NodeResult
from comfyserverless.graph.plan import Constant, Link, PlanNode
from comfyserverless.graph.semantics.mapping import values_of

_MAX_VALUE_CHARS = 2000
MODEL_FILE_ERROR = f"{ModelFileError.__module__}.{ModelFileError.__qualname__}"


def now_ms() -> int:
    """Return the Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


def mentions(result: NodeResult) -> tuple[InvocationId, ...]:
    """List the invocations whose results a node's values mention, in first-mention order.

    Constants of the nodes that it expands to count as well.
    """
    values = [value for edge in result.outputs for value in values_of(edge)]
    found = (output.invocation for output in outputs_in([values, dict(result.expand or {})]))
    return tuple(dict.fromkeys(found))


def shown_files(files: FolderPaths, result: NodeResult) -> list[str]:
    """List the paths of the files that a result's ui shows."""
    items = [item for items in (result.ui or {}).values() for item in items if isinstance(item, dict)]
    return [
        os.path.join(files.base(item["type"]), item["subfolder"], item["filename"])
        for item in items
        if "filename" in item
    ]


def shown_inputs(
    node: PlanNode,
    given: Mapping[str, Sequence[Value]] | None = None,
    peek: Callable[[Output], Value | None] = lambda _: None,
) -> dict[str, list[Any]]:
    """Format the values of inputs as ComfyUI's error report shows them, one entry for each value.

    given: the values as far as they are known; other inputs are shown by what was submitted, links by their
    source. peek: what a symbol stands for, None if nobody knows yet.
    """
    known = given or {}
    return {
        name: [_shown(value, peek) for value in known.get(name, (_submitted(source),))]
        for name, source in node.inputs.items()
    }


def _submitted(source: Link | Constant) -> Value:
    return f"output {source.slot} of node {source.source}" if isinstance(source, Link) else source.value


def _shown(value: Value, peek: Callable[[Output], Value | None]) -> Any:
    """Format one value: numbers, texts, booleans and null as they are, all else as text."""
    if isinstance(value, Output):
        found = peek(value)
        return "(not known yet)" if found is None else _shown(found, peek)
    if value is None or isinstance(value, bool | int | float | str):
        return json_safe(value)
    shown = transform(value, lambda leaf: _named(leaf, peek))
    return shown if isinstance(shown, str) else brief(shown, _MAX_VALUE_CHARS)


def _named(leaf: Value, peek: Callable[[Output], Value | None]) -> Any:
    """Name a tensor, a model or another thing of no textual form inside a value."""
    match leaf:
        case Output():
            return _shown(leaf, peek)
        case TensorRef(shape=shape, dtype=dtype):
            return f"tensor of {dtype} {list(shape)}"
        case ObjectRef(type_name=name):
            return f"<{name}>"
        case Blocked():
            return "<ExecutionBlocker>"
        case None | bool() | int() | float() | str():
            return leaf
    file = getattr(leaf, "file", None)
    return f"<{type(leaf).__name__}{f' of {os.path.basename(file.path)}' if file is not None else ''}>"


def blamed_node(plan: Graph, node: NodeId, error: BaseException) -> NodeId:
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
            if isinstance(source, Link) and source.source in plan.nodes and source.source not in seen:
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
    if isinstance(error, ComfyServerlessError) and error.shown_as:
        return error.shown_as
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def frames(error: BaseException) -> tuple[str, ...]:
    """Format the frames of an error: the worker's own, none for one of ours that speaks for itself."""
    if isinstance(error, WorkerError):
        return error.traceback
    return () if isinstance(error, ComfyServerlessError) else tuple(traceback.format_tb(error.__traceback__))
