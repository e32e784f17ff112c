"""Prove that the measurements of servers run, and count what they claim."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TRIES = 5

pytestmark = pytest.mark.timeout(1800)


def bench(*flags: str) -> dict[str, Any]:
    """Run `comfyserverless bench` with flags; returns the last line of its output."""
    command = [sys.executable, "-m", "comfyserverless", "bench", *flags]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_clients_are_told_of_all_their_prompts() -> None:
    for _ in range(TRIES):
        cpu_ms = [told_of_all(graph)["workers_cpu_ms_per_prompt"] for graph in ("new", "cached")]
        if cpu_ms[0] > 2 * cpu_ms[1]:  # in so short a time now and then something else counts more
            return
    raise AssertionError("workers work as much for what is cached")


def told_of_all(graph: str) -> dict[str, Any]:
    """Measure, and check that clients were told of everything; returns the figures."""
    found = bench("serve", "--clients", "30", "--rate", "20", "--seconds", "3", "--graph", graph)
    assert (found["bench"], found["graph"], found["clients"]) == ("serve", graph, 30)
    assert (found["errors"], found["clients_cut_off"], found["ws_lost"]) == (0, 0, 0)
    assert found["ws_kinds"]["execution_success"] == 60
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["most_ms"]
    return found


def test_long_queue_is_listed_and_changed_within_a_moment() -> None:
    slowest_ms = []
    for _ in range(TRIES):
        found = bench("serve", "--queue", "3000")
        assert found["queue"] == 3000
        assert {"list", "cancel", "delete_some", "move_to_front", "clear"} <= found["worst_ms"].keys()
        slowest_ms.append(found["slowest_ms"])
        if slowest_ms[-1] < 3_000:  # the bar is 200 ms for 10,000 on a quiet machine
            return
    raise AssertionError(slowest_ms)


def test_nothing_is_lost_when_the_server_is_killed() -> None:
    found = bench("crash", "--kills", "3", "--seed", "5")
    assert (found["bench"], found["kills"], found["integrity"]) == ("crash", 3, "ok")
    assert (found["lost"], found["duplicated_outputs"], found["missing_outputs"]) == (0, 0, 0)
    assert (found["foreign_outputs"], found["failed"]) == (0, 0)
    assert found["accepted"] > 10


def test_more_clients_than_files_may_be_open_are_refused_with_a_reason() -> None:
    command = f"ulimit -n 600 && {sys.executable} -m comfyserverless bench serve --clients 500"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2
    assert "500 clients need 1512 open files, and this user may have 600" in done.stderr
