"""Execute one prompt: lower nodes as early as possible, report them in ComfyUI's order.

Every node that must run is lowered as soon as its inputs are known, even as symbols, so independent work
overlaps. What the user sees is ComfyUI's sequence: one node after the other, each with its progress.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

from comfyserverless.control.cache import NodeCache
from comfyserverless.control.context import NodeContext, NodeListener, RunIdentity, RunServices
from comfyserverless.control.describing import blamed_node, frames, now_ms, shown_inputs, type_name
from comfyserverless.control.execution.growth import GrowingPlan
from comfyserverless.control.execution.previews import preview_method, preview_of
from comfyserverless.control.execution.reports import Reporter
from comfyserverless.control.execution.walk import (
    DependencyCycleError,
    FailedNodeError,
    InterruptedRunError,
    Walk,
)
from comfyserverless.control.views import (
    Notice,
    RunEnded,
    RunFailed,
    RunInterrupted,
    RunRecord,
    RunStatus,
    RunSucceeded,
)
from comfyserverless.core.errors import ComfyServerlessError
from comfyserverless.core.ids import NodeId, PromptId, WorkerId
from comfyserverless.core.values import Value
from comfyserverless.graph.lowering import HiddenInputs
from comfyserverless.graph.plan import Plan, PlanNode
from comfyserverless.graph.questions import Question, Tokens, token_questions

log = logging.getLogger(__name__)


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
        self._plan = GrowingPlan(plan, services.files)
        self._services = services
        self._notify = notify
        self._interrupted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reporter = Reporter(record, self._plan, notify)
        self._again: dict[NodeId, int] = {}
        self._walk = Walk(self._plan, services, cache, self._reporter, self._context_of, self._interrupted)

    @property
    def plan(self) -> Plan:
        """Return the submitted plan."""
        return self._plan.submitted

    @property
    def signatures(self) -> Mapping[NodeId, Hashable | None]:
        """Return the cache keys of all nodes, also of those that were added so far."""
        return self._plan.signatures

    @property
    def homes(self) -> Collection[Hashable]:
        """Return the submitted nodes for which added nodes of earlier runs are kept."""
        return self._plan.homes()

    @property
    def executed_homes(self) -> Collection[Hashable]:
        """Return the submitted nodes that this run has executed: what they did not add now is out of date."""
        real = (self._plan.real(node) for node in self._reporter.executed)
        return {(node.id, node.declaration.name) for node in real}

    def interrupt(self) -> None:
        """Stop at the next chance; steps that run already are finished and their results dropped."""
        if not self._interrupted.done():
            self._interrupted.set_result(None)

    def let_go(self, worker: WorkerId) -> bool:
        """Give back what is in a worker's arena only to be cached or reported; False if there was nothing."""
        return self._walk.ledger.let_go(worker, self._plan.targets)

    async def read(self) -> None:
        """Compute the cache signatures (before the cache is pruned for this run)."""
        questions = token_questions(self._plan.nodes.values(), self._plan.prompt)
        self._plan.sign(await self._tokens(questions) if questions else {})

    async def _tokens(self, questions: Sequence[Question]) -> Tokens:
        """Ask for change tokens; none if the user stops the run meanwhile."""
        asking = asyncio.ensure_future(self._services.classes.tokens(questions))
        either: set[asyncio.Future[Any]] = {asking, self._interrupted}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else {}
        finally:
            asking.cancel()

    async def execute(self) -> None:
        """Run to the end and report it; raises nothing but cancellation."""
        self._reporter.began()
        try:
            await self._walk.run()
        except InterruptedRunError:
            self._end_interrupted()
        except FailedNodeError as error:
            self._end_failed(error)
        else:
            event = RunSucceeded(*self._reporter.identity, now_ms())
            self._reporter.ended(RunStatus.SUCCESS, event)
        finally:
            await self._walk.close()
            self._services.dispatcher.close_run(self._key)

    def end_by_fault(self, error: Exception) -> None:
        """Report a fault of the server itself at the node that was current, so that clients hear of an end."""
        if self.record.ended_ms is not None:
            return
        failure = FailedNodeError(self._walk.current or self._plan.targets[0])
        failure.__cause__ = error
        self._end_failed(failure)

    def announce_end(self) -> None:
        """Send the last event of the run."""
        self._notify(RunEnded(*self._reporter.identity))

    # -- beginning --------------------------------------------------------------------------------

    def _context_of(self, node: PlanNode, listener: NodeListener, is_again: bool) -> NodeContext:
        record = self.record
        hidden = HiddenInputs(
            self._plan.prompt,
            record.extra_data.get("extra_pnginfo"),
            node.id,
            self._plan.lineage,
            record.extra_data,
            record.prompt_id,
            record.client_id,
            record.tenant,
            self._key,
        )
        if is_again:
            self._again[node.id] = self._again.get(node.id, 0) + 1
        real = self._plan.real(node.id)
        identity = RunIdentity(
            self._key,
            record.tenant,
            *self._preview,
            record.priority,
            node=real.id,
            node_class=real.declaration.name,
            attempt=self._again.get(node.id, 0),
        )
        return NodeContext(self._services, identity, hidden, listener)

    @cached_property
    def _preview(self) -> tuple[str, Value]:
        """The preview method of this run, and what sampling steps are told of it; files are looked up once."""
        services = self._services
        method = preview_method(self.record.extra_data.get("preview_method"), services.preview_method)
        return method, preview_of(method, services.preview_px, services.files)

    # -- ending -----------------------------------------------------------------------------------

    def _end_interrupted(self) -> None:
        node = self._plan.real(self._walk.current or self._plan.targets[0])
        executed = tuple(self._reporter.executed)
        event = RunInterrupted(*self._reporter.identity, node.id, node.declaration.name, executed, now_ms())
        self._reporter.ended(RunStatus.INTERRUPTED, event)

    def _end_failed(self, error: FailedNodeError) -> None:
        cause = error.__cause__
        assert cause is not None
        shown = self._plan.nodes[blamed_node(self._plan, error.node, cause)]
        given = error.run.given if error.run is not None and shown.id == error.node else {}
        if not isinstance(cause, ComfyServerlessError):
            log.error("prompt %s, node %s failed", self.record.prompt_id, shown.id, exc_info=cause)
        real = self._plan.real(shown.id)
        executed = self._reporter.executed
        event = RunFailed(
            *self._reporter.identity,
            node=real.id,
            node_type=real.declaration.name,
            executed=tuple(each for each in executed if each != real.id),
            exception_message=f"{cause}\n",
            exception_type=type_name(cause),
            traceback=frames(cause),
            current_inputs=None
            if isinstance(cause, DependencyCycleError)
            else shown_inputs(shown, given, self._services.dispatcher.peek),
            current_outputs=tuple(dict.fromkeys([*self._walk.ledger.cached, *executed])),
            at_ms=now_ms(),
        )
        self._reporter.ended(RunStatus.ERROR, event)
