"""Run graphs in this process, one call after the other: real lowerings and functions, no server, no arena.

Much faster than a server, so that many graphs can be tried; what a server adds is tried apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import signal
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch

from comfyserverless.control.files import FolderPaths
from comfyserverless.control.saving import destination
from comfyserverless.core import values
from comfyserverless.core.errors import CapacityError, PromptError
from comfyserverless.core.ids import InvocationId, NodeId, TensorId, WorkerId
from comfyserverless.core.values import FileRef, Output, TensorRef, Value
from comfyserverless.functions.registry import FUNCTIONS
from comfyserverless.graph.lowering import (
    Blocked,
    Destination,
    Emitted,
    HiddenInputs,
    NodeResult,
    StepProgress,
)
from comfyserverless.graph.plan import Constant, Link, Plan, PlanNode
from comfyserverless.graph.semantics.inputs import read_slot
from comfyserverless.graph.semantics.mapping import blocker_in, calls_of, edge_of, values_of
from comfyserverless.graph.semantics.merging import CallResult, merge
from comfyserverless.graph.validation import validate
from comfyserverless.models.pool import ModelPool
from comfyserverless.nodes.registry import BUILTIN
from comfyserverless.sdk.modelfn import Later
from comfyserverless.worker.failures import is_out_of_memory
from tests.support.fuzz.graphs import break_graph, sound_graphs
from tests.support.fuzz.judging import TINY_ONLY, Report, folder_paths, maker_for, provide_inputs

_CPU_LIMIT_S = 20.0


class LocalRun:
    """Run validated graphs; pool: of the models, files: where everything lies."""

    def __init__(self, pool: ModelPool, files: FolderPaths) -> None:
        self.pool, self.files = pool, files

    async def run(self, graph: Any) -> bool:
        """Run a graph; False if validation refuses it. Raises what a lowering or a function raises."""
        found = validate(graph, BUILTIN, self.files)
        if found.plan is None:
            assert found.error is not None
            json.dumps([found.error, found.node_errors])
            return False
        done: dict[NodeId, NodeResult] = {}
        tensors: dict[TensorId, torch.Tensor] = {}
        for target in found.plan.targets:
            await self._run_node(found.plan, target, done, tensors)
        return True

    async def _run_node(
        self,
        plan: Plan,
        node_id: NodeId,
        done: dict[NodeId, NodeResult],
        tensors: dict[TensorId, torch.Tensor],
    ) -> None:
        if node_id in done:
            return
        node, declared = plan.nodes[node_id], {spec.name for spec in plan.nodes[node_id].declaration.inputs}
        inputs: dict[str, Sequence[Value]] = {}
        for name, source in node.inputs.items():
            if isinstance(source, Constant) and name in declared:
                inputs[name] = (source.value,)
            elif isinstance(source, Link):
                await self._run_node(plan, source.source, done, tensors)
                inputs[name] = read_slot(done[source.source], source.slot) or (None,)
        context = LocalContext(self, plan, node_id, tensors)
        results: list[CallResult] = []
        with blaming(node.declaration.name):
            for call in calls_of(inputs, node.declaration):
                is_blocked = blocker_in(call, node.declaration) is not None
                results.append(Blocked() if is_blocked else await self._call(node, context, call))
        done[node_id] = merge(results, node.declaration.outputs)

    async def _call(self, node: PlanNode, context: LocalContext, call: Mapping[str, Value]) -> NodeResult:
        """Make one call of a node. Raises PromptError if it expands: that is tried apart."""
        result = await node.declaration.lower(context, call)
        if result.expand:
            raise PromptError("this node becomes others")
        edges = []
        for edge in result.outputs:
            found = [
                value if isinstance(value, Blocked) else values.replace_outputs(value, context.find)
                for value in values_of(edge)
            ]
            values.encode([value for value in found if not isinstance(value, Blocked)])
            edges.append(edge_of(found))
        return NodeResult(edges, result.ui)


@contextmanager
def blaming(name: str) -> Iterator[None]:
    """Note the node class on an exception."""
    try:
        yield
    except Exception as exc:
        exc.add_note(f"in {name}")
        raise


class _Slow(BaseException):
    """A graph takes more of the processor's time than it should."""


def fuzz_locally(base: Path, models: Path, given: argparse.Namespace, report: Report) -> None:
    """Run graphs for some minutes; most of them avoid samplers and autoencoders, to try more."""
    signal.signal(signal.SIGPROF, _interrupt)
    logging.disable(logging.WARNING)
    for name in ("input", "output", "temp", "user", "custom_nodes"):
        (base / name).mkdir()
    provide_inputs(base)
    run = LocalRun(ModelPool(torch.device("cpu")), folder_paths(base, models))
    makers = [maker_for(base, models, given.extreme, avoids_models=avoids) for avoids in (False, True, True)]
    names = given.nodes.split(",") if given.nodes else sorted(makers[0].classes)
    sound, turn, until_s = sound_graphs(), 0, time.monotonic() + given.minutes * 60
    while time.monotonic() < until_s:
        rng = random.Random(f"{given.seed}/{turn}")
        graph: Any = rng.choice(makers).about(rng, names[turn % len(names)])
        if turn % 8 == 7 and not given.nodes:
            graph = break_graph(rng, rng.choice(sound))
        turn += 1
        judge_locally(run, graph, report)


def judge_locally(run: LocalRun, graph: Any, report: Report) -> None:
    """Run a graph and note what went wrong."""
    try:
        graph = json.loads(json.dumps(graph).replace("\\ud800", "?"))
    except RecursionError:  # what the server refuses when it reads it
        return
    signal.setitimer(signal.ITIMER_PROF, _CPU_LIMIT_S)
    try:
        outcome = "success" if asyncio.run(run.run(graph)) else "refused"
    except (PromptError, CapacityError) as exc:
        outcome = type(exc).__name__
    except _Slow:
        outcome = "slow"
    except Exception as exc:  # noqa: BLE001 - the very thing that is looked for
        signal.setitimer(signal.ITIMER_PROF, 0)
        is_meant = is_out_of_memory(exc) or TINY_ONLY in str(exc)
        outcome = "too large or too small" if is_meant else "fault"
        if outcome == "fault":
            report.find("".join(traceback.format_exception(exc)[-4:]), graph)
    signal.setitimer(signal.ITIMER_PROF, 0)
    report.counts[f"graph {outcome}"] += 1


def _interrupt(signal_number: int, frame: object) -> None:
    raise _Slow


class LocalContext:
    """Give a lowering its context; what it emits runs at once."""

    preview_method = "latent2rgb"
    preview = {"size_px": 64, "decoders": None}  # noqa: RUF012
    embeds_metadata = True
    split_guidance = "off"

    def __init__(
        self, run: LocalRun, plan: Plan, node_id: NodeId, tensors: dict[TensorId, torch.Tensor]
    ) -> None:
        self.hidden = HiddenInputs(plan.prompt, None, node_id)
        self._run, self._tensors = run, tensors
        self._results: dict[InvocationId, Mapping[str, Value]] = {}

    def choice(self, key: str) -> bool | None:
        """Nothing was chosen."""
        return None

    def choose(self, key: str, choice: bool) -> bool:
        """Take the first choice."""
        return choice

    def emit(self, function: str, *, progress: StepProgress | None = None, **inputs: Value) -> Emitted:
        """Run a function."""
        refs = values.replace_outputs(inputs, self.find)
        values.encode(refs)
        called = FUNCTIONS[function]
        components = called.load_model(refs, self._run.pool)
        given = values.transform(refs, self._tensor)
        with torch.inference_mode():
            outputs = called.execute(components, **given)
        invocation = InvocationId(f"{self.hidden.unique_id}/{len(self._results)}")
        made = {port: value.make() if isinstance(value, Later) else value for port, value in outputs.items()}
        self._results[invocation] = self._store(made)
        return Emitted(invocation)

    def report(self, progress: StepProgress, preview: bytes | None = None, node: NodeId | None = None) -> None:
        """Show nothing."""

    def show_text(self, text: str, node: NodeId | None = None) -> None:
        """Show nothing."""

    def keep_only(self, emitted: Emitted) -> None:
        """Keep everything."""

    async def result(self, output: Output) -> Value:
        """Return a value."""
        return self.find(output)

    def find(self, output: Output) -> Value:
        """Return the value of a symbol."""
        return values.select(self._results[output.invocation][output.port], output.path)

    def find_file(self, folder: str, name: str) -> FileRef:
        """Find a model file."""
        return self._run.files.find(folder, name)

    def file_names(self, folder: str) -> list[str]:
        """List model files."""
        return self._run.files.names(folder)

    def embedding_folders(self) -> tuple[str, ...]:
        """Return the folders of textual inversions."""
        return self._run.files.embedding_folders()

    def find_input_file(self, name: str) -> FileRef:
        """Find an uploaded file."""
        return self._run.files.find_input(name)

    def destination(self, kind: str, prefix: str, width_px: int = 0, height_px: int = 0) -> Destination:
        """Resolve a filename prefix."""
        base = self._run.files.base(kind)
        return destination(base, kind, prefix, (width_px, height_px), time.localtime(0))

    def expected_number(self, place: Destination) -> int:
        """Return the number of the first file."""
        return 1

    def staging_stem(self) -> str:
        """Return a stem for part files."""
        return ".part"

    async def publish(self, place: Destination, staged: Sequence[str], extension: str) -> list[dict[str, str]]:
        """Remove the files again."""
        for path in staged:
            os.unlink(path)
        return []

    def _tensor(self, leaf: Value) -> Any:
        return self._tensors[leaf.id] if isinstance(leaf, TensorRef) else leaf

    def _store(self, value: Any) -> Value:
        if isinstance(value, torch.Tensor):
            ref = TensorRef(
                TensorId(f"w:{len(self._tensors)}"),
                tuple(value.shape),
                str(value.dtype).removeprefix("torch."),
                value.numel() * value.element_size(),
                WorkerId("w"),
                0,
            )
            self._tensors[ref.id] = value.clone()
            return ref
        if isinstance(value, Mapping):
            return {key: self._store(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._store(item) for item in value]
        if hasattr(value, "lengths") and hasattr(value, "elements"):
            lists: dict[str, list[Any]] = {key: [None] * length for key, length in value.lengths.items()}
            for key, index, element in value.elements:
                lists[key][index] = self._store(element)
            return lists
        values.encode(value)
        return cast("Value", value)
