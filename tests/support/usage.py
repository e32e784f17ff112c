"""Make stays of invocations in lanes, and the accounts of use that take note of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comfyserverless.control.metering.book import UsageBook
from comfyserverless.control.metering.measured import Measured
from comfyserverless.control.records.base import Retention
from comfyserverless.control.records.changes import Accepted
from comfyserverless.control.records.store import RecordStore
from comfyserverless.control.records.usage.query import Group, UsagePage, UsageQuery, UsageSpan
from comfyserverless.core.ids import DEFAULT_TENANT, InvocationId, NodeId, PromptId, TenantId, WorkerId
from comfyserverless.core.messages import Timing
from comfyserverless.scheduling.events import InvocationSpec
from tests.support.records import open_at, waiting

ALL = UsageSpan(0, 1_000_000)
DAY_MS = 86_400_000


def measured(
    prompt: str = "a",
    node: str = "3",
    timing: Timing = Timing(0.5, 1.0, 0.25, 0.125),  # noqa: B008  (frozen)
    charged_s: float | None = None,
    **fields: Any,
) -> Measured:
    """Return a stay. charged_s: None for the timing's total; fields: of the spec, and `worker`, `queued_s`."""
    worker, queued_s = fields.pop("worker", "w0.0"), fields.pop("queued_s", 2.0)
    spec = InvocationSpec(
        **{
            "id": InvocationId(f"{prompt}#0/{node}/0"),
            "run": PromptId(f"{prompt}#0"),
            "tenant": DEFAULT_TENANT,
            "node": NodeId(node),
            "function": "denoise.step",
            "lane": "gpu",
            "cost_key": "",
            "node_class": "KSampler",
            **fields,
        }
    )
    is_lost = charged_s is not None
    charge_s = timing.total_s() if charged_s is None else charged_s
    if is_lost:
        timing = Timing()
    return Measured(spec, WorkerId(worker), "lost" if is_lost else "done", queued_s, 9.0, timing, charge_s, 0.0)


@dataclass
class Clock:
    """Tell the time that a test says, in Unix milliseconds."""

    now_ms: int = 20_000 * DAY_MS

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class Books:
    """The accounts of servers that follow each other on one file, or a single one in memory."""

    path: Path | None = None
    clock: Clock = field(default_factory=Clock)
    retention: Retention = field(default_factory=Retention)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        backend, opening = open_at(self.path, self.retention, self.clock())
        self.store = RecordStore(backend)
        self.book = UsageBook(self.store, opening, self.clock)

    def stop(self) -> None:
        self.book.write()
        self.store.close()

    def crash(self) -> None:
        """End without a word and start again; what was handed to the store by then is on disk."""
        self.store.close()
        self.start()

    def accept(self, *names: str, tenant: TenantId = DEFAULT_TENANT) -> None:
        """Let prompts be known; only then is it kept what they use."""
        for name in names:
            self.store.note(Accepted(waiting(name, tenant=tenant), 1))

    async def page(self, *groups: Group, span: UsageSpan = ALL, **fields: Any) -> UsagePage:
        """Add up what was used; fields: of the query, whose tenant is the default one."""
        return await self.book.page(
            UsageQuery(**{"tenant": DEFAULT_TENANT, "group_by": groups, **fields}), span
        )


MakeBooks = Callable[..., Books]
