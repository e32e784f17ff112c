"""Tables hold what was used to the nanosecond, and nothing that a spreadsheet would carry out."""

from __future__ import annotations

import csv
import io

import pytest

from comfyserverless.control.metering.amounts import Amounts
from comfyserverless.control.records.usage.query import Group, UsageQuery, UsageRow
from comfyserverless.core.ids import DEFAULT_TENANT, NodeId, PromptId
from comfyserverless.server.usage.showing import prompt_costs, table_head, table_rows

QUERY = UsageQuery(DEFAULT_TENANT, (Group.DAY, Group.PROMPT, Group.NODE, Group.CLASS))
AMOUNTS = Amounts(3, 2_500_000_000, 1, 1_000_000_000, 0, 125_000_000, -7)


def cells(*rows: UsageRow) -> list[list[str]]:
    return list(csv.reader(io.StringIO(table_head(QUERY) + table_rows(QUERY, rows), newline="")))


def test_table_names_its_columns_and_holds_exact_seconds() -> None:
    row = UsageRow((20_000, 5, "3", "KSampler"), (20_000, "p", "3", "KSampler"), AMOUNTS)
    head, shown = cells(row)
    assert dict(zip(head, shown, strict=True)) == {
        "day": "2024-10-04",
        "prompt_id": "p",
        "node": "3",
        "class_type": "KSampler",
        "calls": "3",
        "charged_s": "0.999999994",
        "queued_s": "2.500000000",
        "load_s": "0.000000001",
        "compute_s": "1.000000000",
        "transfer_s": "0.000000000",
        "waited_s": "0.125000000",
        "untimed_s": "-0.000000007",
    }


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1"])
def test_text_that_a_spreadsheet_would_carry_out_is_marked_as_text(text: str) -> None:
    _, shown = cells(UsageRow((1, 1, text, "x"), (1, "p", text, "x"), AMOUNTS))
    assert shown[2] == f"'{text}"


def test_formula_behind_what_some_spreadsheets_take_for_the_border_of_cells_is_marked_too() -> None:
    text = "a;=1+1;-x; b"
    _, shown = cells(UsageRow((1, 1, text, "x"), (1, "p", text, "x"), AMOUNTS))
    assert shown[2] == "a;'=1+1;'-x; b"


@pytest.mark.parametrize("text", ["3", 'a"b', "a,b", "a\nb", "a;b", "", "é"])
def test_other_text_stays_as_it_is(text: str) -> None:
    _, shown = cells(UsageRow((1, 1, text, "x"), (1, "p", text, "x"), AMOUNTS))
    assert shown[2] == text


def test_cost_of_a_node_joins_its_workers_and_nodes_add_up_to_the_prompt() -> None:
    part = Amounts(1, 10, 20, 30, 40, 50, 60)
    rows = [
        UsageRow((node, worker), (node, worker), part)
        for node, worker in (("3", "w0"), ("3", "w1"), ("8", "w0"))
    ]
    shown = prompt_costs(PromptId("p"), "completed", rows, {NodeId("4"), NodeId("8")})
    nodes = shown["nodes"]
    assert {node: (cost["cached"], cost["workers"], cost["calls"]) for node, cost in nodes.items()} == {
        "3": (False, ["w0", "w1"], 2),
        "4": (True, [], 0),
        "8": (True, ["w0"], 1),
    }
    assert nodes["3"]["charged_s"] == 300e-9
    assert nodes["4"]["charged_s"] == 0.0
    assert (shown["prompt_id"], shown["status"], shown["calls"], shown["charged_s"]) == (
        "p",
        "completed",
        3,
        450e-9,
    )
