"""Say which usage to add up, and by what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from comfyserverless.control.metering.amounts import Amounts
from comfyserverless.core.ids import PromptId, TenantId


class Group(StrEnum):
    """What usage can be added up by.

    The last ones are known of prompts that are in history, or not over; the first ones of all.
    """

    TENANT = "tenant"
    DAY = "day"
    LANE = "lane"
    FUNCTION = "function"
    PROMPT = "prompt"
    NODE = "node"
    CLASS = "class"
    MODEL = "model"
    WORKER = "worker"


BY_DAY = frozenset({Group.TENANT, Group.DAY, Group.LANE, Group.FUNCTION})
"""What is known of usage when its prompts are forgotten."""


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Which usage to add up. Pre: group_by names something, and nothing twice.

    tenant: None for all of them. first_day, last_day: UTC days since 1970, both included.
    """

    tenant: TenantId | None
    group_by: tuple[Group, ...]
    first_day: int | None = None
    last_day: int | None = None
    prompt_id: PromptId | None = None
    is_descending: bool = False

    @property
    def is_of_prompts(self) -> bool:
        """Tell whether only prompts that are still known can answer."""
        return self.prompt_id is not None or not BY_DAY.issuperset(self.group_by)


Key = tuple[str | int, ...]
"""Where a row stands in the order of a query."""


class UsageRow(NamedTuple):
    """One sum. values: what it is of, in the order of the query's groups."""

    key: Key
    values: tuple[str | int, ...]
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class UsagePage:
    """Some rows of a query, and what all of its rows make together. count: of all rows."""

    rows: list[UsageRow]
    count: int
    total: Amounts


@dataclass(frozen=True, slots=True)
class UsageSpan:
    """Which rows of a query to return: so many, from a position on, and only those after a row (None: all)."""

    start: int
    count: int
    after: Key | None = None
