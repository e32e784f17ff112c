"""Take the nodes of a run in ComfyUI's order: one turn after the other, whatever is made beside or before it.

A turn shows a node as the one that runs, and ends when the node is done, or waits: for lazy inputs that it has
asked for, for the nodes it has become, or, if its code is a coroutine, for itself while others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from comfyserverless.control.cache import NodeCache
from comfyserverless.control.context import NodeContext, NodeListener, RunServices
from comfyserverless.control.describing import shown_files
from comfyserverless.control.execution.evaluation import Evaluation
from comfyserverless.control.execution.growth import GrowingPlan
from comfyserverless.control.execution.ledger import Ledger
from comfyserverless.control.execution.node_run import NodeRun, Stop
from comfyserverless.control.execution.reports import Reporter
from comfyserverless.core.errors import PromptError
from comfyserverless.core.ids import NodeId
from comfyserverless.graph.frontier import Frontier
from comfyserverless.graph.lowering import NodeResult, StepProgress
from comfyserverless.graph.plan import PlanNode
from comfyserverless.graph.questions import token_questions
from comfyserverless.graph.semantics.expansion import joined, plan_added
from comfyserverless.graph.semantics.merging import CallResult

_YIELD_EVERY_TURNS = 32
_T = TypeVar("_T")

ContextMaker = Callable[[PlanNode, NodeListener, bool], NodeContext]
"""Make the context of a node; the last argument: its result is made again."""


class InterruptedRunError(Exception):
    """The user stopped the run."""


class DependencyCycleError(PromptError):
    """Nodes wait for each other, by lazy inputs or expansions."""

    shown_as: ClassVar[str] = "graph.DependencyCycleError"


class FailedNodeError(Exception):
    """A node failed; the cause is chained. run: its evaluation, None if there is none to blame."""

    def __init__(self, node: NodeId, run: NodeRun | None = None) -> None:
        super().__init__(node)
        self.node = node
        self.run = run


class Walk:
    """Own the order of one run. interrupted: done when the run is to stop."""

    def __init__(
        self,
        plan: GrowingPlan,
        services: RunServices,
        cache: NodeCache,
        reporter: Reporter,
        make_context: ContextMaker,
        interrupted: asyncio.Future[None],
    ) -> None:
        self.current: NodeId | None = None
        self.ledger = Ledger(plan, cache, services.dispatcher, reporter.record.prompt_id, self._start)
        self._plan = plan
        self._services = services
        self._reporter = reporter
        self._make_context = make_context
        self._interrupted = interrupted
        self._frontier: Frontier
        #: what nodes wait for that have had a turn and are not done.
        self._stops: dict[NodeId, Stop] = {}
        #: nodes that go on by themselves, and those of them that wait for their next turn.
        self._aside: dict[NodeId, asyncio.Task[Stop | None]] = {}
        self._back: dict[NodeId, asyncio.Task[Stop | None]] = {}
        self._came_back = asyncio.Event()

    async def run(self) -> None:
        """Run all targets. Raises InterruptedRunError or FailedNodeError."""
        self._reporter.cached(self.ledger.look_up(self._plan.nodes))
        self._frontier = frontier = Frontier(self._plan, self.ledger.cached)
        self.ledger.begin(frontier.needed())
        turns = 0
        while not frontier.is_finished():
            if self._interrupted.done():
                raise InterruptedRunError
            self._bring_back()
            node = frontier.next()
            if node is None:
                await self._wait_for_one()
                continue
            self.current = node
            await self._take_turn(node)
            turns += 1
            if turns % _YIELD_EVERY_TURNS == 0:
                await asyncio.sleep(0)

    async def close(self) -> None:
        """Stop what still runs and give back every pin of this run."""
        watches = [*self._aside.values(), *self._back.values()]
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        await self.ledger.close()

    # -- what evaluations need (evaluation.World) -------------------------------------------------

    async def result_of(self, node: NodeId) -> NodeResult:
        """Wait for the result of a node."""
        return await self.ledger.result_of(node)

    def hold(self, run: NodeRun, result: NodeResult) -> None:
        """Keep what a result mentions for the run."""
        self.ledger.hold(run, result)

    async def grow(self, run: NodeRun, results: Sequence[CallResult]) -> Sequence[NodeId]:
        """Add the nodes that results expand to; returns the output nodes among them."""
        parent, classes = run.node.id, self._services.classes
        for result in results:
            if isinstance(result, NodeResult):
                self.hold(run, result)
        raw = joined(parent, results, self._plan.nodes)
        planned = plan_added(parent, raw, await classes.declare(raw))
        questions = token_questions(planned.values(), raw)
        tokens = await classes.tokens(questions) if questions else {}
        joined(parent, results, self._plan.nodes)  # others may have been added meanwhile
        self._plan.add(parent, planned, raw, tokens)
        self._frontier.note_done(self.ledger.look_up(planned))
        return [node.id for node in planned.values() if node.declaration.output_node]

    def _start(self, node: PlanNode, is_silent: bool) -> NodeRun:
        listener = _Listener(self._reporter)
        run = NodeRun(node, self._make_context(node, listener, is_silent), is_silent=is_silent)
        listener.run = run
        run.task = asyncio.create_task(Evaluation(run, self).result())
        return run

    # -- turns ------------------------------------------------------------------------------------

    async def _take_turn(self, node: NodeId) -> None:
        run = self.ledger.run_of(node)
        if run is None or run.shown_as not in (None, node):
            await self._replay(node, run)
            return
        watch = self._back.pop(node, None)
        if watch is None:
            self._present(run, node)
            if run.is_done:
                self._finish(run, node)
                return
            watch = asyncio.create_task(run.outcome())
            if run.node.declaration.is_async:
                self._set_aside(node, watch)
                return
        stop = await self._settled(watch, node, run)
        if stop is None:
            self._finish(run, node)
        else:
            self._wait(run, node, stop)

    def _present(self, run: NodeRun, node: NodeId) -> None:
        """Show a node as the one that runs, and let it go on from where it stands."""
        stop = self._stops.pop(node, None)
        if stop is None or not stop.expands:
            self._reporter.started(node, again=stop is not None)
        if stop is not None:
            run.resume()
            return
        run.shown_as = node
        run.turn.set()
        for step, preview, where in run.early_steps:
            self._reporter.step(where or node, step, preview)
        run.early_steps.clear()

    def _wait(self, run: NodeRun, node: NodeId, stop: Stop) -> None:
        """Let a node wait for what it cannot go on without."""
        self._stops[node] = stop
        if stop.ui:
            run.has_shown_ui = True
            self._reporter.shown(node, stop.ui)
        self.ledger.begin(self._frontier.add(stop.outputs))
        self.ledger.begin(self._frontier.wait_for(node, stop.sources))

    def _finish(self, run: NodeRun, node: NodeId) -> None:
        assert run.task is not None
        result = run.task.result()
        if run.blocked_message is not None:
            self._reporter.blocked(node, run.blocked_message)
        self._reporter.executed.append(node)
        if result.ui and not run.has_shown_ui:
            self._reporter.shown(node, result.ui)
        self.ledger.keep(run, result, tuple(shown_files(self._services.files, result)))
        self._reporter.finished(node)
        self._frontier.complete(node)

    async def _replay(self, node: NodeId, run: NodeRun | None) -> None:
        """Report a node whose result is there already, from the cache or from an equal node."""
        if run is None:
            result = self.ledger.cached[node].result
        else:
            presenter = run.shown_as
            assert presenter is not None
            assert run.task is not None
            if not self._frontier.is_complete(presenter):
                self._frontier.wait_for(node, [presenter])
                return
            result = await self._race(asyncio.shield(run.task))
        self._reporter.shown(node, result.ui or None)
        self._reporter.finished(node)
        self._frontier.complete(node)

    # -- waiting ----------------------------------------------------------------------------------

    def _set_aside(self, node: NodeId, watch: asyncio.Task[Stop | None]) -> None:
        """Let a node go on by itself; its next turn comes when it is done or stops."""
        self._frontier.set_aside(node)
        self._aside[node] = watch
        watch.add_done_callback(lambda _: self._came_back.set())

    def _bring_back(self) -> None:
        """Give those a turn again that went on by themselves and have come to something."""
        if self._came_back.is_set():
            self._came_back.clear()
            for node in [node for node, watch in self._aside.items() if watch.done()]:
                self._back[node] = self._aside.pop(node)
                self._frontier.bring_back(node)

    async def _wait_for_one(self) -> None:
        """Wait for a node that goes on by itself. Raises FailedNodeError if there is none: a cycle."""
        if self._aside:
            await self._race(asyncio.ensure_future(self._came_back.wait()))
            return
        stuck = self._frontier.stuck()
        displays = {node: self._plan.lineage.display(node) for node in stuck}
        blamed = next((shown for node, shown in displays.items() if shown != node), stuck[0])
        names = " -> ".join(stuck[:32])
        raise FailedNodeError(blamed) from DependencyCycleError(f"Dependency cycle detected: {names}")

    async def _settled(self, watch: asyncio.Task[Stop | None], node: NodeId, run: NodeRun) -> Stop | None:
        """Wait for what a node comes to, or the interrupt."""
        try:
            return await self._race(watch)
        except InterruptedRunError:
            raise
        except Exception as exc:  # the border of a node's work
            raise FailedNodeError(node, run) from exc

    async def _race(self, wanted: asyncio.Future[_T]) -> _T:
        """Wait for something. Raises InterruptedRunError as soon as the run is to stop."""
        either: set[asyncio.Future[Any]] = {wanted, self._interrupted}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._interrupted.done():
            wanted.cancel()
            await asyncio.gather(wanted, return_exceptions=True)
            raise InterruptedRunError
        return wanted.result()


class _Listener:
    """Tell what a node has to show, from its first turn on; what came before is kept until then."""

    def __init__(self, reporter: Reporter) -> None:
        self.run: NodeRun | None = None
        self._reporter = reporter

    def on_step(self, step: StepProgress, preview: bytes | None, node: NodeId | None = None) -> None:
        """Tell or keep a step."""
        run = self.run
        if run is None or run.is_silent:
            return
        if run.shown_as is None:
            run.early_steps.append((step, preview, node))
        else:
            self._reporter.step(node or run.shown_as, step, preview)

    def on_text(self, text: str, node: NodeId | None = None) -> None:
        """Tell a text."""
        if self.run is not None and not self.run.is_silent:
            self._reporter.text(node or self.run.shown_as or self.run.node.id, text)
