"""Compare the order in which nodes run with websocket traces of ComfyUI 0.8.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comfyserverless.graph.frontier import Frontier
from comfyserverless.graph.validation import validate
from tests.support.graph_fakes import RECORDED_CLASSES, FakeCatalog, with_builtin

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "node_order.json").read_text())


@pytest.mark.parametrize("case", RECORDED)
def test_nodes_run_in_the_recorded_order(case: str) -> None:
    recorded = RECORDED[case]
    plan = validate(recorded["prompt"], with_builtin(*RECORDED_CLASSES), FakeCatalog()).plan
    assert plan is not None
    frontier = Frontier(plan, recorded["cached"])
    order = []
    while (node := frontier.next()) is not None:
        if node not in recorded["cached"]:  # a cached target takes its turn, but is not executed
            order.append(node)
        frontier.validate()
        if node == recorded["stopped_at"]:
            break
        frontier.complete(node)
    assert order == recorded["order"]
    assert frontier.is_finished() == (recorded["stopped_at"] is None)
