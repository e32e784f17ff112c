"""Run prompts of small node classes written in Python, through the real run, frontier, cache and dispatcher.

Nothing is computed: a worker that answers at once with references to tensors that nobody has stands for all.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from comfyserverless.control.cache import NodeCache
from comfyserverless.control.context import RunServices
from comfyserverless.control.dispatch import Dispatcher
from comfyserverless.control.execution.classes import NodeClasses, OwnClasses
from comfyserverless.control.files import FolderPaths
from comfyserverless.control.run import Run
from comfyserverless.control.views import (
    NodeExecuted,
    NodesCached,
    NodeStarted,
    Notice,
    RunFailed,
    RunRecord,
    RunStatus,
)
from comfyserverless.control.workers.checkpoints import CheckpointFiles, Recovery
from comfyserverless.core import messages as wire
from comfyserverless.core import values
from comfyserverless.core.config import Folders
from comfyserverless.core.ids import DEFAULT_TENANT, NodeId, PromptId, TensorId, WorkerId
from comfyserverless.core.modelfn import BUILTIN_FUNCTIONS
from comfyserverless.core.values import TensorRef, Value
from comfyserverless.graph.declaration import InputSpec, NodeDeclaration, OutputSpec
from comfyserverless.graph.lowering import LoweringContext, NodeResult
from comfyserverless.graph.validation import validate
from comfyserverless.nodes.registry import Registry
from comfyserverless.scheduling.state import SchedulingConfig
from tests.support.graph_prompts import Prompt

WORKER = WorkerId("w0.0")

Body = Callable[..., Any]
"""What a node does with its arguments: gives one value, a tuple of them, or a NodeResult."""


def any_input(name: str, **options: Any) -> InputSpec:
    """Return an optional input for whatever comes."""
    return InputSpec(name, "*", options, "optional", matches_any=True)


def lowered(body: Body) -> Callable[[LoweringContext, Mapping[str, Value]], Awaitable[NodeResult]]:
    """Return a lowering that calls a function with the node's inputs."""

    async def lower(context: LoweringContext, inputs: Mapping[str, Value]) -> NodeResult:
        made = body(**inputs)
        if asyncio.iscoroutine(made):
            made = await made
        if isinstance(made, NodeResult):
            return made
        return NodeResult(made if isinstance(made, tuple) else (made,))

    return lower


def node_of(
    name: str, body: Body, *inputs: str | InputSpec, outputs: str = "*", **more: Any
) -> NodeDeclaration:
    """Return a class whose nodes call a function; an output `*[]` is a list."""
    specs = tuple(each if isinstance(each, InputSpec) else any_input(each) for each in inputs)
    slots = tuple(
        OutputSpec(kind.removesuffix("[]"), is_list=kind.endswith("[]"), matches_any=True)
        for kind in outputs.split()
    )
    return NodeDeclaration(name=name, lower=lowered(body), inputs=specs, outputs=slots, **more)


def show(**inputs: Any) -> NodeResult:
    """Show the inputs as texts."""
    return NodeResult((), {"text": [repr(inputs.get("value"))]})


SHOW = node_of("Show", show, "value", outputs="", output_node=True)


@dataclass
class Ran:
    """What came of a prompt."""

    record: RunRecord
    notices: list[Notice]

    @property
    def started(self) -> list[str]:
        """List the nodes that were shown as running, in order, repeats included."""
        return [notice.node for notice in self.notices if isinstance(notice, NodeStarted)]

    @property
    def cached(self) -> list[str]:
        """List the nodes that were said to be cached at the beginning."""
        return [node for notice in self.notices if isinstance(notice, NodesCached) for node in notice.nodes]

    def did_run(self, *nodes: str) -> bool:
        """Tell whether all of these nodes were executed."""
        return set(nodes) <= set(self.started)

    def was_cached(self, *nodes: str) -> bool:
        """Tell whether none of these nodes was executed."""
        return not set(nodes) & set(self.started)

    def shown(self, node: str) -> list[Any]:
        """Return the texts that a node has shown, in this run."""
        found = [n.ui for n in self.notices if isinstance(n, NodeExecuted) and n.node == node]
        assert len(found) == 1, f"{node} was shown {len(found)} times"
        return [] if found[0] is None else found[0]["text"]

    @property
    def error(self) -> RunFailed:
        """Return why it failed."""
        (found,) = (notice for notice in self.notices if isinstance(notice, RunFailed))
        return found

    def of_type(self, kind: type[Any]) -> list[Any]:
        """List the notices of one type."""
        return [notice for notice in self.notices if isinstance(notice, kind)]


@dataclass
class Bench:
    """A server's inside with some node classes. classes: beside `Show`, which shows its input `value`.

    holds: names of functions whose invocations are not answered, but kept in `waiting`.
    """

    classes: Sequence[NodeDeclaration]
    folder: Path
    mode: str = "classic"
    limit: int = 0
    holds: frozenset[str] = frozenset()
    waiting: list[wire.RunInvocation] = field(default_factory=list)
    calls: list[wire.RunInvocation] = field(default_factory=list)
    freed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cache = NodeCache(self.mode, self.limit)
        self._serials = itertools.count()
        self.registry = Registry([*self.classes, SHOW])
        given, output, temp, user, nodes = (
            self.folder / name for name in ("input", "output", "temp", "user", "nodes")
        )
        self.files = FolderPaths(Folders(self.folder, (), given, output, temp, user, nodes))
        recovery = Recovery(CheckpointFiles(self.folder, 1 << 20))
        clock = itertools.count()
        self.dispatcher = Dispatcher(
            SchedulingConfig(slack_s=1.0), self._send, lambda: next(clock) / 100, lambda _: False, recovery
        )
        self.dispatcher.worker_joined(WORKER, {"cpu": 4, "gpu": 4, "pack": 1, "async": 8})
        self.runs: list[Run] = []

    def start(
        self, prompt: Prompt, targets: Sequence[str] | None = None, classes: NodeClasses | None = None
    ) -> tuple[Ran, asyncio.Task[None]]:
        """Begin a prompt; returns what will have come of it, and the task that ends with it."""
        plan = validate(prompt, self.registry, self.files, targets).plan
        assert plan is not None
        ran = Ran(
            RunRecord(
                PromptId("p"), DEFAULT_TENANT, 0, plan.prompt, {}, plan.targets, "client", 0, RunStatus.RUNNING
            ),
            [],
        )
        services = RunServices(
            dispatcher=self.dispatcher,
            files=self.files,
            publisher=cast(Any, None),
            embeds_metadata=False,
            preview_method="none",
            preview_px=512,
            split_guidance="off",
            choices=cast(Any, None),
            staging_tag="t",
            classes=classes or OwnClasses(self.registry),
        )
        run = Run(ran.record, plan, services, self.cache, ran.notices.append, next(self._serials))
        self.runs.append(run)
        return ran, asyncio.create_task(self._execute(run))

    async def run(self, prompt: Prompt, targets: Sequence[str] | None = None) -> Ran:
        """Run a prompt to its end."""
        ran, task = self.start(prompt, targets)
        async with asyncio.timeout(60):
            await task
        return ran

    def forget_results(self) -> None:
        """Drop what is cached: if nothing is leaked, nothing is held any more."""
        for entry in self.cache.clear():
            self.dispatcher.unpin(entry.invocations, "test")

    async def _execute(self, run: Run) -> None:
        await run.read()
        for out in self.cache.retain(set(run.signatures.values()), run.homes):
            self.dispatcher.unpin(out.invocations, "test")
        await run.execute()
        for out in self.cache.drop_added(run.executed_homes, set(run.signatures.values())):
            self.dispatcher.unpin(out.invocations, "test")

    def _send(self, worker: WorkerId, message: wire.ToWorker) -> None:
        if isinstance(message, wire.FreeTensors):
            self.freed += message.tensors
        elif isinstance(message, wire.CancelInvocation):
            answer = wire.InvocationCancelled(message.invocation, wire.Timing())
            asyncio.get_running_loop().call_soon(self.dispatcher.cancelled, worker, answer)
        elif isinstance(message, wire.RunInvocation):
            self.calls.append(message)
            if message.function in self.holds:
                self.waiting.append(message)
            else:
                asyncio.get_running_loop().call_soon(self.answer, message)

    def answer(self, call: wire.RunInvocation) -> None:
        """Answer a call: a tensor for every output."""
        outputs = {
            port.name: TensorRef(
                TensorId(f"{call.invocation}:{port.name}"), (1, 8, 8, 3), "float32", 768, WORKER, 0
            )
            for port in BUILTIN_FUNCTIONS[call.function].outputs
        }
        self.dispatcher.done(
            WORKER, wire.InvocationDone(call.invocation, values.encode(outputs), wire.Timing(compute_s=0.1))
        )


def link(node: str, slot: int = 0) -> list[Any]:
    """Return a link to an output of a submitted node."""
    return [node, slot]


def node_id(name: str) -> NodeId:
    """Return a node id."""
    return NodeId(name)
