"""Run an API prompt in this process: real node lowerings, real functions, no server and no workers.

Every emitted invocation runs at once, with tensors in place of references. It is the shortest way from a
graph to its numbers; what it leaves out is caching, scheduling, progress and file names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from comfyserverless.core.ids import InvocationId
from comfyserverless.core.values import FileRef, Output, Value, select, transform
from comfyserverless.functions.registry import FUNCTIONS
from comfyserverless.graph.lowering import Emitted, StepProgress
from comfyserverless.nodes.registry import BUILTIN
from comfyserverless.sdk.modelfn import ModelFn


@dataclass
class DirectRun:
    """A lowering context that runs functions where they are emitted.

    pool: a model pool; models, inputs: folders. calls: names of the functions that ran, in order.
    """

    pool: Any
    models: Path
    inputs: Path
    functions: Mapping[str, ModelFn] = field(default_factory=lambda: FUNCTIONS)
    preview_method: str = "none"
    calls: list[str] = field(default_factory=list)
    results: dict[InvocationId, Mapping[str, Value]] = field(default_factory=dict)

    def emit(self, function: str, *, progress: StepProgress | None = None, **inputs: Value) -> Emitted:
        invocation = InvocationId(f"{len(self.calls)}:{function}")
        self.calls.append(function)
        implementation = self.functions[function]
        given = {name: self.resolve(value) for name, value in inputs.items()}
        components = implementation.load_model(given, self.pool)
        self.results[invocation] = implementation.execute(components, **given)
        return Emitted(invocation)

    def resolve(self, value: Value) -> Value:
        """Replace every symbol in a value tree by what its invocation returned."""
        return transform(value, lambda leaf: self._value(leaf) if isinstance(leaf, Output) else leaf)

    def _value(self, output: Output) -> Value:
        return select(self.results[output.invocation][output.port], output.path)

    async def result(self, output: Output) -> Value:
        return self._value(output)

    def find_file(self, folder: str, name: str) -> FileRef:
        path = self.models / folder / name
        stat = path.stat()
        return FileRef(str(path), stat.st_size, stat.st_mtime_ns)

    def embedding_folders(self) -> tuple[str, ...]:
        return (str(self.models / "embeddings"),)

    def find_input_file(self, name: str) -> FileRef:
        return FileRef(str(self.inputs / name))


def run_prompt(run: DirectRun, prompt: Mapping[str, Any], targets: Sequence[str]) -> dict[str, Tensor]:
    """Return, by node id, what reaches each target: a SaveLatent's samples or a SaveImage's images."""
    done: dict[str, Sequence[Value]] = {}
    return {node: run.resolve(_saved(run, prompt, node, done)) for node in targets}


def _saved(run: DirectRun, prompt: Mapping[str, Any], node: str, done: dict[str, Sequence[Value]]) -> Value:
    inputs = _inputs(run, prompt, node, done)
    return inputs["samples"]["samples"] if "samples" in inputs else inputs["images"]


def _inputs(
    run: DirectRun, prompt: Mapping[str, Any], node: str, done: dict[str, Sequence[Value]]
) -> dict[str, Value]:
    return {
        name: _outputs(run, prompt, value[0], done)[value[1]] if isinstance(value, list) else value
        for name, value in prompt[node]["inputs"].items()
    }


def _outputs(
    run: DirectRun, prompt: Mapping[str, Any], node: str, done: dict[str, Sequence[Value]]
) -> Sequence[Value]:
    if node not in done:
        declaration = BUILTIN.get(prompt[node]["class_type"])
        if declaration is None:
            raise LookupError(f"node class {prompt[node]['class_type']} is not built")
        inputs = _inputs(run, prompt, node, done)
        done[node] = asyncio.run(declaration.lower(run, inputs)).outputs  # type: ignore[arg-type]
    return done[node]
