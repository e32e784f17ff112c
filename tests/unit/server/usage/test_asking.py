"""Questions about usage mean what they say, and mistakes in them are answered with the choices."""

from __future__ import annotations

import pytest

from comfyserverless.control.records.usage.query import Group, UsageQuery, UsageSpan
from comfyserverless.core.ids import PromptId, TenantId
from comfyserverless.server.access import Identity
from comfyserverless.server.bodies import BodyError
from comfyserverless.server.usage.asking import NotAllowedError, read_question, shown_day

ALICE, BOB = TenantId("alice"), TenantId("bob")
TENANT, OPERATOR = Identity(ALICE, "alice", is_operator=False), Identity(ALICE, "alice", is_operator=True)
NODES = (Group.PROMPT, Group.NODE, Group.CLASS)


@pytest.mark.parametrize(
    ("params", "query"),
    [
        ({}, UsageQuery(ALICE, (Group.DAY,))),
        ({"tenant": "alice"}, UsageQuery(ALICE, (Group.DAY,))),
        ({"group_by": " Function, day,function"}, UsageQuery(ALICE, (Group.FUNCTION, Group.DAY))),
        ({"group_by": "node"}, UsageQuery(ALICE, NODES)),
        ({"prompt_id": "p"}, UsageQuery(ALICE, (Group.NODE, Group.CLASS), prompt_id=PromptId("p"))),
        ({"from": "1970-01-02", "to": "1970-01-03"}, UsageQuery(ALICE, (Group.DAY,), 1, 2)),
        ({"sort_order": "desc"}, UsageQuery(ALICE, (Group.DAY,), is_descending=True)),
    ],
)
def test_question_is_read(params: dict[str, str], query: UsageQuery) -> None:
    asked = read_question(params, "*/*", TENANT)
    assert (asked.query, asked.span(), asked.is_csv) == (query, UsageSpan(0, 1_000), False)


@pytest.mark.parametrize(
    ("params", "accept", "is_csv"),
    [
        ({"format": "csv"}, "", True),
        ({}, "text/csv, */*;q=0.1", True),
        ({"format": "json"}, "text/csv", False),
        ({}, "application/json", False),
    ],
)
def test_table_is_sent_to_who_asks_for_one(params: dict[str, str], accept: str, is_csv: bool) -> None:
    assert read_question(params, accept, TENANT).is_csv is is_csv


def test_page_is_read() -> None:
    asked = read_question({"limit": "7", "offset": "14"}, "", TENANT)
    assert (asked.start, asked.count, asked.span()) == (14, 7, UsageSpan(14, 7))


def test_only_operators_may_ask_for_others() -> None:
    assert read_question({"tenant": "bob"}, "", OPERATOR).query.tenant == BOB
    everybody = read_question({"tenant": "*", "group_by": "function"}, "", OPERATOR).query
    assert (everybody.tenant, everybody.group_by) == (None, (Group.TENANT, Group.FUNCTION))
    for name in ("bob", "*", "nobody", ""):
        with pytest.raises(NotAllowedError):
            read_question({"tenant": name}, "", TENANT)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        (
            {"group_by": "colour,day"},
            "Unknown group_by colour; known: tenant, day, lane, function, prompt, node",
        ),
        ({"from": "yesterday"}, "from must be a UTC date like 2026-01-31"),
        ({"from": "2026-02-30"}, "from must be a UTC date"),
        ({"to": "20260101"}, "to must be a UTC date"),
        ({"from": "2026-01-02", "to": "2026-01-01"}, "from (2026-01-02) is after to (2026-01-01)"),
        ({"limit": "0"}, "limit must be a whole number from 1 to 10000"),
        ({"limit": "x"}, "limit must be a whole number"),
        ({"limit": "9" * 5000}, "limit must be a whole number"),
        ({"offset": "-1"}, "offset must be a whole number from 0"),
        ({"offset": "1" + "0" * 30}, "offset must be a whole number from 0"),
        ({"format": "xml"}, "format must be one of json, csv"),
        ({"sort_order": "up"}, "sort_order must be one of asc, desc"),
    ],
)
def test_mistake_is_answered_with_the_choices(params: dict[str, str], told: str) -> None:
    with pytest.raises(BodyError) as caught:
        read_question(params, "", TENANT)
    assert told in str(caught.value)


def test_days_are_shown_as_dates() -> None:
    assert [shown_day(day) for day in (-1, 0, 20_000)] == ["1969-12-31", "1970-01-01", "2024-10-04"]
