"""Follow one node of a run from the start of its lowering to the end of all it emitted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from comfyserverless.control.context import NodeContext
from comfyserverless.core.ids import InvocationId, NodeId
from comfyserverless.graph.lowering import NodeResult, StepProgress
from comfyserverless.graph.plan import Link, PlanNode


class NodeRun:
    """One node on its way: its lowering task, its context, and the steps seen before its turn."""

    def __init__(self, node: PlanNode, context: NodeContext) -> None:
        self.node = node
        self.context = context
        self.turn = asyncio.Event()
        self.task: asyncio.Task[NodeResult] | None = None
        self.early_steps: list[tuple[StepProgress, bytes | None]] = []
        #: what the node's result mentions, pinned once by the run.
        self.held: tuple[InvocationId, ...] = ()
        self.is_let_go = False
        """What was held is not any more: the result must not be used again."""

    @property
    def is_lowered(self) -> bool:
        """Tell whether the lowering has returned: it names no further results of other nodes."""
        return self.task is not None and self.task.done()

    def let_go(self) -> tuple[InvocationId, ...]:
        """Hold nothing any more; returns what was held."""
        held, self.held, self.is_let_go = self.held, (), True
        return held

    async def completed(self) -> NodeResult:
        """Wait for the lowering and for everything it emitted. Raises the node's failure."""
        assert self.task is not None
        # the first failure of an emitted invocation ends the node even while its lowering waits
        finishing: asyncio.Future[Any] = asyncio.ensure_future(self.context.failed())
        try:
            either: set[asyncio.Future[Any]] = {self.task, finishing}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not self.task.done():
                finishing.result()
            result = self.task.result()
            await self.context.finished()
            return result
        finally:
            finishing.cancel()


def still_named(runs: Iterable[NodeRun]) -> Iterator[NodeId]:
    """Yield the nodes whose results some lowering may yet ask for, with repeats."""
    for run in runs:
        if not run.is_lowered:
            yield from (value.source for value in run.node.inputs.values() if isinstance(value, Link))
