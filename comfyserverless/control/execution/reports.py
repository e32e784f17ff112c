"""Tell what happens in one run, in order, and write down what its record keeps of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from comfyserverless.control.describing import now_ms
from comfyserverless.control.execution.growth import GrowingPlan
from comfyserverless.control.views import (
    NodeBlocked,
    NodeExecuted,
    NodeFinished,
    NodePreview,
    NodeProgress,
    NodesCached,
    NodeStarted,
    NodeText,
    Notice,
    RunFailed,
    RunInterrupted,
    RunRecord,
    RunStarted,
    RunStatus,
    RunSucceeded,
)
from comfyserverless.core.ids import NodeId
from comfyserverless.graph.lowering import StepProgress


class Reporter:
    """Own the record of a run while it runs. notify: where events go."""

    def __init__(self, record: RunRecord, plan: GrowingPlan, notify: Callable[[Notice], None]) -> None:
        self.record = record
        self.executed: list[NodeId] = []
        self._plan = plan
        self._notify = notify

    @property
    def identity(self) -> tuple[Any, Any, str | None]:
        """Return the first fields of every event."""
        return self.record.prompt_id, self.record.tenant, self.record.client_id

    @property
    def is_over(self) -> bool:
        """Tell whether the end was told: nothing comes after it."""
        return self.record.ended_ms is not None

    def began(self) -> None:
        """Tell that the run has left the queue."""
        self.record.started_ms = now_ms()
        self._lifecycle(RunStarted(*self.identity, self.record.started_ms))

    def cached(self, nodes: Iterable[NodeId]) -> None:
        """Tell which submitted nodes have a result already."""
        self._lifecycle(NodesCached(*self.identity, tuple(nodes), now_ms()))

    def started(self, node: NodeId, *, again: bool = False) -> None:
        """Tell that a node runs now."""
        self.record.current_node = self._plan.lineage.display(node)
        self._notify(NodeStarted(*self.identity, node, again, origin=self._plan.origin(node)))

    def step(self, node: NodeId, step: StepProgress, preview: bytes | None) -> None:
        """Tell of progress, if the run goes on: a step may have been on its way when it was interrupted."""
        if self.is_over:
            return
        origin = self._plan.origin(node)
        self._notify(NodeProgress(*self.identity, node, step.value, step.maximum, origin=origin))
        if preview is not None:
            self._notify(NodePreview(*self.identity, node, preview, origin=origin))

    def text(self, node: NodeId, text: str) -> None:
        """Tell a text that a node shows."""
        if not self.is_over:
            self._notify(NodeText(*self.identity, node, text, origin=self._plan.origin(node)))

    def blocked(self, node: NodeId, message: str) -> None:
        """Tell that a node did not run for want of a value that was withheld."""
        where = self._plan.origin(node)
        kind = self._plan.real(node).declaration.name
        self._notify(NodeBlocked(*self.identity, node, kind, message, tuple(self.executed), origin=where))

    def shown(self, node: NodeId, ui: Mapping[str, list[Any]] | None) -> None:
        """Tell what a node shows; None: nothing, and its result was there before."""
        origin = self._plan.origin(node)
        if ui is not None:
            self.record.outputs[node] = ui
            if origin is not None:
                self.record.origins[node] = origin
        self._notify(NodeExecuted(*self.identity, node, ui, origin=origin))

    def finished(self, node: NodeId) -> None:
        """Tell that a node is done."""
        self._notify(NodeFinished(*self.identity, node, origin=self._plan.origin(node)))

    def ended(self, status: RunStatus, event: RunSucceeded | RunFailed | RunInterrupted) -> None:
        """Tell how the run has ended."""
        self.record.status = status
        self.record.ended_ms = event.at_ms
        self._lifecycle(event)

    def _lifecycle(self, event: RunStarted | NodesCached | RunSucceeded | RunFailed | RunInterrupted) -> None:
        self.record.messages.append(event)
        self._notify(event)
