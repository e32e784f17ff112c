"""Read what a request wants to know about usage. Pure; what cannot be meant is a BodyError with the choices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from comfyserverless.control.records.usage.query import Group, UsageQuery, UsageSpan
from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.server.access import Identity
from comfyserverless.server.bodies import BodyError
from comfyserverless.server.numbers import whole_number

ALL_TENANTS = "*"
_FORMATS = ("json", "csv")
_ORDERS = ("asc", "desc")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_FIRST_DAY = date(1970, 1, 1)
_DEFAULT_ROWS = 1_000
_MOST_ROWS = 10_000
_LAST_START = 1_000_000_000


class NotAllowedError(Exception):
    """Somebody asks for what only operators may see."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted. span: the page; its count is None for a table that was asked for without a limit."""

    query: UsageQuery
    start: int
    count: int | None
    is_csv: bool

    def span(self) -> UsageSpan:
        """Return the page of a JSON answer."""
        return UsageSpan(self.start, _DEFAULT_ROWS if self.count is None else self.count)


def read_question(params: Mapping[str, str], accept: str, identity: Identity) -> Asked:
    """Read the parameters of `/usage`. Raises BodyError, NotAllowedError."""
    prompt_id = params.get("prompt_id")
    tenant = tenant_asked(params, identity)
    query = UsageQuery(
        tenant,
        _groups(params.get("group_by"), is_of_all=tenant is None, is_of_one=prompt_id is not None),
        _day(params, "from"),
        _day(params, "to"),
        None if prompt_id is None else PromptId(prompt_id),
        _choice(params, "sort_order", _ORDERS, "asc") == "desc",
    )
    if query.first_day is not None and query.last_day is not None and query.first_day > query.last_day:
        raise BodyError(f"from ({params['from']}) is after to ({params['to']})")
    wanted = "csv" if "text/csv" in accept else "json"
    return Asked(
        query,
        whole(params, "offset", 0, _LAST_START) or 0,
        whole(params, "limit", 1, _MOST_ROWS),
        _choice(params, "format", _FORMATS, wanted) == "csv",
    )


def tenant_asked(params: Mapping[str, str], identity: Identity) -> TenantId | None:
    """Return whose usage is asked for, None for everybody's. Raises NotAllowedError."""
    name = params.get("tenant", identity.tenant)
    if name != identity.tenant and not identity.is_operator:
        raise NotAllowedError
    return None if name == ALL_TENANTS else TenantId(name)


def whole(params: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    """Read a whole number, None if it is not given. Raises BodyError."""
    text = params.get(name)
    if text is None:
        return None
    number = whole_number(text)
    if number is None or not least <= number <= most:
        raise BodyError(f"{name} must be a whole number from {least} to {most}")
    return number


def shown_day(day: int) -> str:
    """Show a UTC day, counted from 1970, as a date."""
    return date.fromordinal(_FIRST_DAY.toordinal() + day).isoformat()


def _groups(text: str | None, *, is_of_all: bool, is_of_one: bool) -> tuple[Group, ...]:
    """Read the comma list of what to add up by. What says nothing without another word comes with it."""
    words = [part.strip().lower() for part in (text or "").split(",") if part.strip()]
    unknown = sorted(set(words).difference(Group))
    if unknown:
        raise BodyError(f"Unknown group_by {', '.join(unknown)}; known: {', '.join(Group)}")
    groups = [Group(word) for word in words] or [Group.NODE if is_of_one else Group.DAY]
    if Group.NODE in groups:  # ids of nodes repeat from prompt to prompt
        groups = [*groups, Group.CLASS] if is_of_one else [Group.PROMPT, *groups, Group.CLASS]
    if is_of_all:
        groups = [Group.TENANT, *groups]
    return tuple(dict.fromkeys(groups))


def _day(params: Mapping[str, str], name: str) -> int | None:
    text = params.get(name)
    if text is None:
        return None
    try:
        if _DATE.fullmatch(text) is None:
            raise ValueError(text)
        return date.fromisoformat(text).toordinal() - _FIRST_DAY.toordinal()
    except ValueError:
        raise BodyError(f"{name} must be a UTC date like 2026-01-31") from None


def _choice(params: Mapping[str, str], name: str, choices: tuple[str, ...], default: str) -> str:
    value = params.get(name, default)
    if value not in choices:
        raise BodyError(f"{name} must be one of {', '.join(choices)}")
    return value
