"""Define what a database of records must do; everything else in this room works with any of them.

A backend is used by two threads: one writes, one reads. It knows nothing of either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from comfyserverless.control.records.changes import Change, NamedFile
from comfyserverless.control.records.usage.query import UsagePage, UsageQuery, UsageSpan
from comfyserverless.control.records.usage.writing import Charges
from comfyserverless.control.views import RunRecord, RunStatus
from comfyserverless.core.errors import CapacityError
from comfyserverless.core.ids import NodeId, PromptId, TenantId

NamedSaves = Mapping[tuple[NodeId, int], tuple[NamedFile, ...]]
"""(node, which of its saves) -> the files that were named for it."""


class SortKey(StrEnum):
    """What lists of prompts are sorted by."""

    CREATED = "created_ms"
    DURATION = "duration_ms"


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """Which prompts of a tenant to list, and how sorted. workflow: id of the page's workflow, None for any."""

    tenant: TenantId
    statuses: frozenset[RunStatus]
    workflow: str | None = None
    sort: SortKey = SortKey.CREATED
    is_descending: bool = True

    def matches(self, record: RunRecord) -> bool:
        """Tell whether a record is in the list."""
        if record.tenant != self.tenant or record.status not in self.statuses:
            return False
        return self.workflow is None or self.workflow == record.workflow

    def value(self, record: RunRecord) -> int:
        """Return what a record is sorted by."""
        if self.sort is SortKey.CREATED:
            return record.created_ms
        return 0 if record.ended_ms is None else record.ended_ms - (record.started_ms or 0)


@dataclass(frozen=True, slots=True)
class Retention:
    """How much is kept: so many ended prompts per tenant, none older than so many days (0: any age).

    usage_days: for how many days it is known what was used on them (0: for ever).
    """

    count: int = 10_000
    days: float = 0.0
    usage_days: float = 400.0


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A prompt that waited, ran or was being stopped when the server ended.

    crashes: how often it was running when a server was lost. saves: files that were named for it.
    """

    record: RunRecord
    crashes: int
    is_stopped: bool
    saves: NamedSaves


@dataclass(frozen=True, slots=True)
class Opening:
    """What a backend held when it was opened. counters: numbers given so far, by tenant.

    charged_ns: what tenants have been charged altogether; charged_today_ns: on the present day.
    """

    unfinished: tuple[Unfinished, ...] = ()
    counters: Mapping[TenantId, int] = field(default_factory=dict)
    charged_ns: Charges = field(default_factory=dict)
    charged_today_ns: Charges = field(default_factory=dict)


class Rows(Protocol):
    """What a statement found or changed: a cursor of Python's database interface."""

    @property
    def rowcount(self) -> int:
        """Return how many rows were changed."""

    def fetchone(self) -> Any:
        """Return the next row as a tuple, None at the end."""

    def fetchall(self) -> list[Any]:
        """Return the other rows."""

    def __iter__(self) -> Iterator[Any]: ...


class Execute(Protocol):
    """Run one statement on a connection.

    What is run this way is SQL that SQLite and PostgreSQL both know, with `?` for values: ON CONFLICT where a
    row may be there. An index that SQLite must use is named by INDEXED BY, which the other one leaves out.
    """

    def __call__(self, sql: str, values: Sequence[Any] = (), /) -> Rows:
        """Run a statement with its values."""


class DatabaseAwayError(CapacityError):
    """The database cannot be reached, and what was asked for was not done; it is expected back."""


class Backend(Protocol):
    """One database. Methods raise CapacityError when it cannot be read or written now."""

    def open(self, now_ms: int) -> Opening:
        """Take over what the last server left; called once. Running prompts wait again, one crash older."""

    def commit(self, changes: Sequence[Change], now_ms: int) -> None:
        """Apply changes in order, all or none; on return they survive a loss of power."""

    def tidy(self, now_ms: int) -> None:
        """Forget history and usage that is too old."""

    def find(self, tenant: TenantId, prompt_id: PromptId) -> RunRecord | None:
        """Return an ended prompt."""

    def history_count(self, tenant: TenantId) -> int:
        """Count the ended prompts of a tenant."""

    def history(self, tenant: TenantId, start: int, count: int) -> list[RunRecord]:
        """Return ended prompts, oldest end first, from position `start` on."""

    def count(self, query: RecordQuery) -> int:
        """Count the ended prompts of a list."""

    def keys(self, query: RecordQuery, start: int, count: int) -> list[tuple[int, int]]:
        """Return (sort value, key) of the ended prompts of a list, in its order, from position `start` on."""

    def load(self, keys: Sequence[int]) -> dict[int, RunRecord]:
        """Return prompts by key, without those that are gone."""

    def usage(self, query: UsageQuery, span: UsageSpan) -> UsagePage:
        """Add usage up: some rows of a query, and the sum of all of them."""

    def close(self) -> None:
        """End the connections."""
