"""Follow one node of a run from the start of its lowering to the end of all it emitted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyserverless.control.context import NodeContext
from comfyserverless.core.ids import InvocationId, NodeId
from comfyserverless.core.values import Value
from comfyserverless.graph.lowering import NodeResult, StepProgress
from comfyserverless.graph.plan import PlanNode


@dataclass(frozen=True, slots=True)
class Stop:
    """A node cannot go on before others are complete.

    expands: it has become other nodes, and will take results of them; else it needs inputs that it had not
    before. outputs: output nodes among the new ones; ui: what it shows now.
    """

    sources: tuple[NodeId, ...]
    expands: bool = False
    outputs: tuple[NodeId, ...] = ()
    ui: Mapping[str, list[Any]] | None = None


class NodeRun:
    """One node on its way: its task, its context, where it stands, and the steps seen before its turn.

    shown_as: the node whose turn it was first, this one or an equal one. given: the values of its inputs as far
    as they are known, for reports. is_silent: its result was given back and is made again; nobody is told.
    """

    def __init__(self, node: PlanNode, context: NodeContext, *, is_silent: bool = False) -> None:
        self.node = node
        self.context = context
        self.is_silent = is_silent
        self.turn = asyncio.Event()
        self.task: asyncio.Task[NodeResult] | None = None
        self.shown_as: NodeId | None = None
        self.early_steps: list[tuple[StepProgress, bytes | None, NodeId | None]] = []
        self.given: dict[str, Sequence[Value]] = {}
        self.blocked_message: str | None = None
        self.has_expanded = False
        self.has_shown_ui = False
        #: what the node's result mentions, pinned once by the run.
        self.held: tuple[InvocationId, ...] = ()
        self.is_let_go = False
        """What was held is not any more: the result must not be used again."""
        self._stop: asyncio.Future[Stop] = asyncio.get_running_loop().create_future()
        self._resumed = asyncio.Event()
        if is_silent:
            self.turn.set()

    @property
    def is_lowered(self) -> bool:
        """Tell whether the lowering has returned: it names no further results of other nodes."""
        return self.task is not None and self.task.done()

    @property
    def is_done(self) -> bool:
        """Tell whether the node is done with all it emitted, and well: `outcome` has nothing to wait for."""
        task = self.task
        is_made = task is not None and task.done() and not task.cancelled() and task.exception() is None
        return is_made and self.context.is_idle

    def let_go(self) -> tuple[InvocationId, ...]:
        """Hold nothing any more; returns what was held."""
        held, self.held, self.is_let_go = self.held, (), True
        return held

    async def stop(self, stop: Stop) -> None:
        """Say what has to be complete first, and wait until it is; called by the node's task."""
        if self.is_silent:  # nobody orders it: it waits for the results themselves
            return
        self._resumed.clear()
        self._stop.set_result(stop)
        await self._resumed.wait()

    def resume(self) -> None:
        """Let the node go on: what its last stop named is complete."""
        self._stop = asyncio.get_running_loop().create_future()
        self._resumed.set()

    async def outcome(self) -> Stop | None:
        """Wait until the node is done with all it emitted (None), or stops. Raises the node's failure."""
        assert self.task is not None
        # the first failure of an emitted invocation ends the node even while its lowering waits
        failing: asyncio.Future[Any] = asyncio.ensure_future(self.context.failed())
        try:
            either: set[asyncio.Future[Any]] = {self.task, failing, self._stop}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not self.task.done():
                if failing.done():
                    failing.result()
                return self._stop.result()
            self.task.result()
            await self.context.finished()
            return None
        finally:
            failing.cancel()
