"""Execute one prompt: lower nodes as early as possible, report them in ComfyUI's order.

Every node that must run is lowered as soon as its inputs are known, even as symbols, so independent work
overlaps. What the user sees is ComfyUI's sequence: one node after the other, each with its progress. An
output node waits for its turn before it is lowered, so a failure before it leaves no file behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from comfyserverless.control.cache import CachedNode, NodeCache
from comfyserverless.control.context import NodeContext, RunIdentity, RunServices
from comfyserverless.control.describing import (
    blamed_node,
    frames,
    mentions,
    now_ms,
    shown_files,
    shown_inputs,
    type_name,
)
from comfyserverless.control.node_run import NodeRun, still_named
from comfyserverless.control.views import (
    NodeExecuted,
    NodeFinished,
    NodePreview,
    NodeProgress,
    NodesCached,
    NodeStarted,
    Notice,
    RunEnded,
    RunFailed,
    RunInterrupted,
    RunRecord,
    RunStarted,
    RunStatus,
    RunSucceeded,
)
from comfyserverless.core.errors import ComfyServerlessError
from comfyserverless.core.ids import InvocationId, NodeId, PromptId, WorkerId
from comfyserverless.core.values import Value
from comfyserverless.graph.frontier import Frontier
from comfyserverless.graph.lowering import HiddenInputs, NodeResult, StepProgress
from comfyserverless.graph.plan import Link, Plan, PlanNode
from comfyserverless.graph.questions import token_questions
from comfyserverless.graph.signature import signatures

log = logging.getLogger(__name__)

_YIELD_EVERY_NODES = 32


class _InterruptedError(Exception):
    """The user stopped the run."""


class _NodeError(Exception):
    """A node failed; the cause is chained."""

    def __init__(self, node: NodeId) -> None:
        super().__init__(node)
        self.node = node


class Run:
    """Own one prompt's execution; the record is this run's to change.

    notify: where events go. serial: no other run of this server has it; a client may use a prompt_id again
    while results of its earlier run are still cached.
    """

    def __init__(
        self,
        record: RunRecord,
        plan: Plan,
        services: RunServices,
        cache: NodeCache,
        notify: Callable[[Notice], None],
        serial: int,
    ) -> None:
        self.record = record
        self._key = PromptId(f"{record.prompt_id}#{serial}")
        self.plan = plan
        self.signatures: Mapping[NodeId, Hashable | None] = {}
        self._services = services
        self._cache = cache
        self._notify = notify
        self._interrupted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._nodes: dict[NodeId, NodeRun] = {}
        self._cached: dict[NodeId, CachedNode] = {}
        #: what the results of cached nodes mention, pinned once by this run.
        self._borrowed: dict[NodeId, tuple[InvocationId, ...]] = {}
        #: signature -> the node of this run that computes it.
        self._first: dict[Hashable, NodeId] = {}
        self._executed: list[NodeId] = []

    def interrupt(self) -> None:
        """Stop at the next chance; steps that run already are finished and their results dropped."""
        if not self._interrupted.done():
            self._interrupted.set_result(None)

    def let_go(self, worker: WorkerId) -> bool:
        """Give back what is in a worker's arena only to be cached or reported; False if there was nothing.

        That is the results that no lowering of this run will name any more: what was emitted keeps its inputs.
        """
        dispatcher, on_worker = self._services.dispatcher, self._services.dispatcher.on_worker
        named = {self._origin(node) for node in still_named(self._nodes.values())}
        spent = [
            run
            for node, run in self._nodes.items()
            if run.is_lowered and node not in named and on_worker(run.held, worker)
        ]
        for run in spent:
            dispatcher.unpin(run.let_go(), run.node.id)
        lent = {node: held for node, held in self._borrowed.items() if node not in named}
        returned = [node for node, held in lent.items() if on_worker(held, worker)]
        for node in returned:
            dispatcher.unpin(self._borrowed.pop(node), self.record.prompt_id)
        return bool(spent or returned)

    async def read(self) -> None:
        """Compute the cache signatures (before the cache is pruned for this run)."""
        questions = token_questions(self.plan.nodes.values(), self.plan.prompt)
        tokens = await self._services.classes.tokens(questions) if questions else {}
        self.signatures = signatures(self.plan, self._services.files, tokens)

    async def execute(self) -> None:
        """Run to the end and report it; raises nothing but cancellation."""
        record = self.record
        record.started_ms = now_ms()
        started = RunStarted(record.prompt_id, record.tenant, record.client_id, record.started_ms)
        record.messages.append(started)
        self._notify(started)
        try:
            await self._walk()
        except _InterruptedError:
            self._end_interrupted()
        except _NodeError as error:
            self._end_failed(error)
        else:
            self._end_succeeded()
        finally:
            await self._close()

    def end_by_fault(self, error: Exception) -> None:
        """Report a fault of the server itself at the node that was current, so that clients hear of an end."""
        if self.record.ended_ms is not None:
            return
        failure = _NodeError(self.record.current_node or self.plan.targets[0])
        failure.__cause__ = error
        self._end_failed(failure)

    def announce_end(self) -> None:
        """Send the last event of the run."""
        self._notify(RunEnded(*self._identity()))

    # -- walking ----------------------------------------------------------------------------------

    async def _walk(self) -> None:
        self._look_up()
        frontier = Frontier(self.plan, self._cached.keys())
        for node in frontier.needed():
            if node not in self._cached:
                self._begin(self.plan.nodes[node])
        count = 0
        while (turn := frontier.next()) is not None:
            if self._interrupted.done():
                raise _InterruptedError
            self.record.current_node = turn
            await self._take_turn(turn)
            frontier.complete(turn)
            count += 1
            if count % _YIELD_EVERY_NODES == 0:
                await asyncio.sleep(0)

    def _look_up(self) -> None:
        """Find the cached nodes, hold them for this run, and say which they are."""
        for node in self.plan.nodes:
            entry = self._cache.get(self.signatures[node])
            if entry is not None:
                self._cached[node] = entry
                self._borrowed[node] = entry.invocations
                self._services.dispatcher.pin(entry.invocations, self.record.prompt_id)
        cached = NodesCached(*self._identity(), tuple(self._cached), now_ms())
        self.record.messages.append(cached)
        self._notify(cached)

    def _begin(self, node: PlanNode) -> None:
        """Start lowering a node, unless an equal node of this run does the same work."""
        signature = self.signatures[node.id]
        if signature is not None and self._cache.is_sharing:
            first = self._first.setdefault(signature, node.id)
            if first != node.id:
                return
        record = self.record
        hidden = HiddenInputs(
            self.plan.prompt,
            record.extra_data.get("extra_pnginfo"),
            node.id,
            extra_data=record.extra_data,
            prompt_id=record.prompt_id,
            client_id=record.client_id,
            tenant=record.tenant,
        )
        identity = RunIdentity(
            self._key,
            record.tenant,
            self._preview_method(),
            record.priority,
            node=node.id,
            node_class=node.declaration.name,
        )
        context = NodeContext(self._services, identity, hidden, _Listener(self, node.id))
        run = self._nodes[node.id] = NodeRun(node, context)
        run.task = asyncio.create_task(self._lower(run))

    async def _lower(self, run: NodeRun) -> NodeResult:
        declared = {spec.name for spec in run.node.declaration.inputs}
        inputs: dict[str, Value] = {}
        for name, source in run.node.inputs.items():
            if name not in declared:
                continue
            if isinstance(source, Link):
                inputs[name] = (await self._result_of(source.source)).outputs[source.slot]
            else:
                inputs[name] = source.value
        if run.node.declaration.output_node:
            await run.turn.wait()
        try:
            result = await run.node.declaration.lower(run.context, inputs)
            run.held = mentions(result)
            self._services.dispatcher.pin(run.held, run.node.id)
        finally:
            run.context.release()
        return result

    async def _result_of(self, node: NodeId) -> NodeResult:
        entry = self._cached.get(node)
        if entry is not None:
            return entry.result
        task = self._nodes[self._origin(node)].task
        assert task is not None
        return await asyncio.shield(task)

    def _origin(self, node: NodeId) -> NodeId:
        """Return the node whose result stands for a node's: itself, or an equal one of this run."""
        return node if node in self._cached else self._first.get(self.signatures[node], node)

    # -- reporting --------------------------------------------------------------------------------

    async def _take_turn(self, node: NodeId) -> None:
        run = self._nodes.get(node)
        if run is None:
            await self._replay(node)
            return
        self._notify(NodeStarted(*self._identity(), node))
        run.turn.set()
        for step, preview in run.early_steps:
            self._report_step(node, step, preview)
        run.early_steps.clear()
        result = await self._completed(run)
        self._executed.append(node)
        if result.ui is not None:
            self._show(node, result.ui)
        self._keep(run, result)
        self._notify(NodeFinished(*self._identity(), node))

    async def _completed(self, run: NodeRun) -> NodeResult:
        """Wait for a node or the interrupt. Raises _InterruptedError or _NodeError."""
        waiter = asyncio.ensure_future(run.completed())
        either: set[asyncio.Future[Any]] = {waiter, self._interrupted}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._interrupted.done():
            waiter.cancel()
            await asyncio.gather(waiter, return_exceptions=True)
            raise _InterruptedError
        try:
            return waiter.result()
        except Exception as exc:  # the border of a node's work
            raise _NodeError(run.node.id) from exc

    async def _replay(self, node: NodeId) -> None:
        """Report a node whose result is there already, from the cache or from an equal node."""
        result = await self._result_of(node)
        if result.ui is None:
            self._notify(NodeExecuted(*self._identity(), node, None))
        else:
            self._show(node, result.ui)
        self._notify(NodeFinished(*self._identity(), node))

    def _show(self, node: NodeId, ui: Mapping[str, list[Any]]) -> None:
        self.record.outputs[node] = ui
        self._notify(NodeExecuted(*self._identity(), node, ui))

    def _keep(self, run: NodeRun, result: NodeResult) -> None:
        """Put a finished node into the cache, with a pin of the cache's own."""
        if run.is_let_go:
            return
        dispatcher = self._services.dispatcher
        dispatcher.pin(run.held, run.node.id)
        files = tuple(shown_files(self._services.files, result))
        entry = CachedNode(result, run.held, files)
        for out in self._cache.put(self.signatures[run.node.id], entry):
            dispatcher.unpin(out.invocations, run.node.id)

    def on_step(self, node: NodeId, step: StepProgress, preview: bytes | None) -> None:
        """Show a step of a node, or keep it until the node's turn."""
        run = self._nodes[node]
        if self.record.ended_ms is not None:
            return  # a step that was on its way when the run was interrupted
        if run.turn.is_set():
            self._report_step(node, step, preview)
        else:
            run.early_steps.append((step, preview))

    def _report_step(self, node: NodeId, step: StepProgress, preview: bytes | None) -> None:
        self._notify(NodeProgress(*self._identity(), node, step.value, step.maximum))
        if preview is not None:
            self._notify(NodePreview(*self._identity(), node, preview))

    # -- ending -----------------------------------------------------------------------------------

    def _end_succeeded(self) -> None:
        self._end(RunStatus.SUCCESS, RunSucceeded(*self._identity(), now_ms()))

    def _end_interrupted(self) -> None:
        node = self.record.current_node or self.plan.targets[0]
        node_type = self.plan.nodes[node].declaration.name
        executed = tuple(self._executed)
        event = RunInterrupted(*self._identity(), node, node_type, executed, now_ms())
        self._end(RunStatus.INTERRUPTED, event)

    def _end_failed(self, error: _NodeError) -> None:
        cause = error.__cause__
        assert cause is not None
        node = self.plan.nodes[blamed_node(self.plan, error.node, cause)]
        if not isinstance(cause, ComfyServerlessError):
            log.error("prompt %s, node %s failed", self.record.prompt_id, node.id, exc_info=cause)
        event = RunFailed(
            *self._identity(),
            node=node.id,
            node_type=node.declaration.name,
            executed=tuple(each for each in self._executed if each != node.id),
            exception_message=f"{cause}\n",
            exception_type=type_name(cause),
            traceback=frames(cause),
            current_inputs=shown_inputs(node),
            current_outputs=tuple(dict.fromkeys([*self._cached, *self._executed])),
            at_ms=now_ms(),
        )
        self._end(RunStatus.ERROR, event)

    def _end(self, status: RunStatus, event: RunSucceeded | RunFailed | RunInterrupted) -> None:
        self.record.status = status
        self.record.ended_ms = event.at_ms
        self.record.messages.append(event)
        self._notify(event)

    async def _close(self) -> None:
        """Stop what still runs and give back every pin of this run."""
        tasks = [run.task for run in self._nodes.values() if run.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        dispatcher = self._services.dispatcher
        for run in self._nodes.values():
            dispatcher.unpin(run.held, run.node.id)
        for invocations in self._borrowed.values():
            dispatcher.unpin(invocations, self.record.prompt_id)
        dispatcher.close_run(self._key)

    def _identity(self) -> tuple[Any, Any, str | None]:
        return self.record.prompt_id, self.record.tenant, self.record.client_id

    def _preview_method(self) -> str:
        wanted = self.record.extra_data.get("preview_method")
        if wanted in (None, "default"):
            wanted = self._services.preview_method
        return "none" if wanted == "none" else "latent2rgb"


class _Listener:
    """Tell a run what one of its nodes has to show."""

    def __init__(self, run: Run, node: NodeId) -> None:
        self._run = run
        self._node = node

    def on_step(self, step: StepProgress, preview: bytes | None, node: NodeId | None = None) -> None:
        """Pass a step on."""
        self._run.on_step(self._node, step, preview)

    def on_text(self, text: str, node: NodeId | None = None) -> None:
        """Pass a text on."""
