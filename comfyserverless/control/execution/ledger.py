"""Know where the result of every node of a run comes from, and hold what the results mention.

A result is in the cache, or an evaluation of this run makes it: the node's own, or that of an equal node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator

from comfyserverless.control.cache import CachedNode, NodeCache
from comfyserverless.control.describing import mentions
from comfyserverless.control.dispatch import Dispatcher
from comfyserverless.control.execution.evaluation import NoNodeError
from comfyserverless.control.execution.growth import GrowingPlan
from comfyserverless.control.execution.node_run import NodeRun
from comfyserverless.core.ids import InvocationId, NodeId, PromptId, WorkerId
from comfyserverless.graph.lowering import NodeResult
from comfyserverless.graph.plan import PlanNode
from comfyserverless.graph.semantics.inputs import followable

Start = Callable[[PlanNode, bool], NodeRun]
"""Begin the evaluation of a node; silently, if its result was there before."""


class Ledger:
    """Own the evaluations of one run, and its pins. start: makes a NodeRun whose task is under way."""

    def __init__(
        self, plan: GrowingPlan, cache: NodeCache, dispatcher: Dispatcher, prompt_id: PromptId, start: Start
    ) -> None:
        self._plan = plan
        self._cache = cache
        self._dispatcher = dispatcher
        self._prompt_id = prompt_id
        self._start = start
        self._runs: dict[NodeId, NodeRun] = {}
        #: evaluations whose results were given back, and are made again by others.
        self._replaced: list[NodeRun] = []
        self.cached: dict[NodeId, CachedNode] = {}
        #: what the results of cached nodes mention, pinned once by this run.
        self._borrowed: dict[NodeId, tuple[InvocationId, ...]] = {}
        #: signature -> the node of this run that computes it.
        self._first: dict[Hashable, NodeId] = {}

    def look_up(self, nodes: Iterable[NodeId]) -> tuple[NodeId, ...]:
        """Find those nodes that are cached, hold their results for this run, and return them."""
        found = []
        for node in nodes:
            entry = self._cache.get(self._plan.signatures[node])
            if entry is not None:
                found.append(node)
                self.cached[node] = entry
                self._borrowed[node] = entry.invocations
                self._dispatcher.pin(entry.invocations, self._prompt_id)
        return tuple(found)

    def begin(self, nodes: Iterable[NodeId]) -> None:
        """Start to evaluate nodes that are not cached, unless an equal node of this run does the same work."""
        for node in nodes:
            if node not in self.cached and not self._has_equal(node) and node not in self._runs:
                self._runs[node] = self._start(self._plan.nodes[node], False)

    def run_of(self, node: NodeId) -> NodeRun | None:
        """Return the evaluation that stands for a node, its own or an equal node's; None if it is cached."""
        return None if node in self.cached else self._runs[self._origin(node)]

    async def result_of(self, node: NodeId) -> NodeResult:
        """Wait for the result of a node. Raises NoNodeError if there is none, and what its lowering raises."""
        if node not in self._plan.nodes:
            raise NoNodeError(node)
        entry = self.cached.get(node)
        if entry is not None and node in self._borrowed:
            return entry.result
        origin = self._origin(node)
        run = self._runs.get(origin)
        if run is None or run.is_let_go:
            run = self._again(origin)
        assert run.task is not None
        return await asyncio.shield(run.task)

    def hold(self, run: NodeRun, result: NodeResult) -> None:
        """Pin what a result mentions, beside what the run holds for its node already."""
        more = mentions(result)
        run.held += more
        self._dispatcher.pin(more, run.node.id)

    def keep(self, run: NodeRun, result: NodeResult, files: tuple[str, ...]) -> None:
        """Put the result of a node into the cache, with a pin of the cache's own."""
        if run.is_let_go:
            return
        held = mentions(result)
        self._dispatcher.pin(held, run.node.id)
        entry = CachedNode(result, held, files, self._plan.home(run.node.id), run.has_expanded)
        for out in self._cache.put(self._plan.signatures[run.node.id], entry):
            self._dispatcher.unpin(out.invocations, run.node.id)

    def let_go(self, worker: WorkerId, targets: Collection[NodeId]) -> bool:
        """Give back what is in a worker's arena only to be cached or reported; False if there was nothing.

        That is the results that no lowering of this run will name any more: what was emitted keeps its inputs.
        """
        if not self._runs and not self._borrowed:
            return False  # it has not begun: its nodes may not be signed yet
        named = {self._origin(node) for node in self._still_named(targets)}
        spent = [
            run
            for node, run in self._runs.items()
            if run.is_lowered and node not in named and not run.has_expanded and self._is_on(run.held, worker)
        ]
        for run in spent:
            self._dispatcher.unpin(run.let_go(), run.node.id)
        returned = [
            node
            for node, held in self._borrowed.items()
            if node not in named and not self.cached[node].has_expanded and self._is_on(held, worker)
        ]
        for node in returned:
            self._dispatcher.unpin(self._borrowed.pop(node), self._prompt_id)
        return bool(spent or returned)

    async def close(self) -> None:
        """Stop what still runs and give back every pin."""
        runs = [*self._runs.values(), *self._replaced]
        tasks = [run.task for run in runs if run.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for run in runs:
            self._dispatcher.unpin(run.held, run.node.id)
        for invocations in self._borrowed.values():
            self._dispatcher.unpin(invocations, self._prompt_id)

    def _origin(self, node: NodeId) -> NodeId:
        """Return the node whose evaluation stands for a node's: itself, or an equal one of this run."""
        if node in self.cached or node in self._runs:
            return node
        return self._first.get(self._plan.signatures[node], node)

    def _has_equal(self, node: NodeId) -> bool:
        """Tell whether another node of this run makes the result; else this one will, for equal ones too."""
        signature = self._plan.signatures[node]
        if signature is None or not self._cache.is_sharing:
            return False
        first = self._first.setdefault(signature, node)
        return first != node and not self._comes_from(node, first)

    def _comes_from(self, node: NodeId, ancestor: NodeId) -> bool:
        """Tell whether a node was added by an expansion of another one, which waits for it then."""
        parent = self._plan.lineage.parent(node)
        while parent is not None and parent != ancestor:
            parent = self._plan.lineage.parent(parent)
        return parent is not None

    def _again(self, node: NodeId) -> NodeRun:
        """Make a result again that was given back, or is wanted by a node that nobody knew of."""
        before = self._runs.get(node)
        if before is not None:
            self._replaced.append(before)
        run = self._runs[node] = self._start(self._plan.nodes[node], True)
        if before is not None:
            run.shown_as = before.shown_as
        return run

    def _still_named(self, targets: Collection[NodeId]) -> Iterator[NodeId]:
        """Yield the nodes whose results some lowering may yet ask for, with repeats."""
        reached, stack = set(self._plan.lineage.nodes), [*targets, *self._plan.lineage.nodes]
        reached.update(targets)
        while stack:
            node = stack.pop()
            run = None if node in self.cached else self._runs.get(self._origin(node))
            if node in self.cached or (run is not None and run.is_lowered):
                continue
            for source in followable(self._plan.nodes[node]):
                if source in self._plan.nodes:
                    yield source
                    if source not in reached:
                        reached.add(source)
                        stack.append(source)

    def _is_on(self, held: Collection[InvocationId], worker: WorkerId) -> bool:
        return bool(self._dispatcher.on_worker(held, worker))
