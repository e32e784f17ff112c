"""A long history costs a server neither memory nor time: it is on disk, and pages of it are found by index."""

from __future__ import annotations

import json
import sqlite3
import time
import urllib.request
from collections.abc import Iterator

import pytest

from comfyserverless.bench.server.process import ServerProcess
from comfyserverless.control.records.base import RecordQuery, SortKey
from comfyserverless.control.records.codec import encode_request, encode_result
from comfyserverless.control.records.reading import Reader
from comfyserverless.control.records.schema import connect_memory
from comfyserverless.control.views import RunStatus
from comfyserverless.core.ids import DEFAULT_TENANT
from tests.support.records import ended, open_at, waiting

COUNT = 100_000
WORKFLOWS = 1_000
#: Pages take a few milliseconds on a quiet machine.
WITHIN_S = 2.0
TRIES = 20
MOST_GROWTH_MB = 80


#: Every second prompt is of the workflow `big`, the others of a thousand.
FILL = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
INSERT INTO prompts (tenant, prompt_id, number, status, client_id, workflow, created_ms, started_ms, ended_ms,
    ended_order, duration_ms, request, result)
SELECT 'default', printf('00000000-0000-0000-0000-%012d', n), n,
    CASE n % 10 WHEN 0 THEN 'error' ELSE 'success' END, 'c',
    CASE n % 2 WHEN 0 THEN 'big' ELSE 'w' || (n % ?) END, n, n + 1, n + 1 + n * 7919 % 100000, n,
    n * 7919 % 100000, ?, ? FROM numbers
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Return a server with a long history."""
    base = tmp_path_factory.mktemp("long")
    path = base / "user/records.sqlite3"
    records, _ = open_at(path)
    records.close()
    record = ended(waiting("x"))
    raw = sqlite3.connect(path)
    with raw:
        raw.execute(FILL, (COUNT, WORKFLOWS, encode_request(record), encode_result(record)))
    raw.close()
    started = ServerProcess(base, ("--history-limit", str(2 * COUNT), "--workers", "1"))
    try:
        started.wait_answering()
        yield started
    finally:
        started.stop()


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("/history?max_items=100", 100),
        (f"/history?max_items=100&offset={COUNT // 2}", 100),
        ("/api/jobs?limit=200", COUNT),
        (f"/api/jobs?limit=200&offset={COUNT // 2}", COUNT),
        (f"/api/jobs?limit=200&offset={COUNT - 200}&sort_order=asc", COUNT),
        (f"/api/jobs?limit=200&sort_by=execution_duration&offset={COUNT // 2}", COUNT),
        ("/api/jobs?limit=200&status=failed", COUNT // 10),
        ("/api/jobs?limit=200&status=cancelled", 0),
        ("/api/jobs?limit=200&workflow_id=w7", COUNT // WORKFLOWS),
        ("/api/jobs?limit=200&workflow_id=w7&sort_by=execution_duration", COUNT // WORKFLOWS),
        (f"/api/jobs?limit=200&workflow_id=big&offset={COUNT // 4}", COUNT // 2),
        ("/api/jobs?limit=200&workflow_id=nobodys", 0),
        ("/history/00000000-0000-0000-0000-000000050000", 1),
    ],
)
def test_every_page_is_there_at_once(server: ServerProcess, path: str, count: int) -> None:
    took_s = []
    for _ in range(TRIES):  # whatever else the machine does only adds to a time
        began_s = time.monotonic()
        found = server.get(path)
        took_s.append(time.monotonic() - began_s)
        assert (len(found) if path.startswith("/history") else found["pagination"]["total"]) == count
        if took_s[-1] < WITHIN_S:
            return
    raise AssertionError(took_s)


def test_whole_history_is_sent_piece_by_piece(server: ServerProcess) -> None:
    before_mb, most_mb, length = server.memory_mb(), 0.0, 0
    with urllib.request.urlopen(f"{server.url}/history", timeout=300) as answer:
        start = answer.read(1 << 10)
        while piece := answer.read(8 << 20):
            length += len(piece)
            most_mb = max(most_mb, server.memory_mb())
    assert start.startswith(b'{"00000000-0000-0000-0000-000000000001":')
    assert length > 300 * COUNT
    assert most_mb - before_mb < MOST_GROWTH_MB


@pytest.mark.parametrize("workflow", [None, "w7"])
def test_lists_are_read_from_indexes_alone(workflow: str | None) -> None:
    raw = connect_memory()
    plans: list[str] = []

    def explained(sql: str, values: object = (), /) -> sqlite3.Cursor:
        plans.extend(row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {sql}", values))  # type: ignore[call-overload]
        return raw.execute(sql, values)  # type: ignore[call-overload, no-any-return]

    reader = Reader(explained)
    for sort in SortKey:
        query = RecordQuery(DEFAULT_TENANT, frozenset(RunStatus), workflow, sort)
        reader.count(query)
        reader.keys(query, 10, 10)
    raw.close()
    searches = [plan for plan in plans if plan.startswith(("SEARCH", "SCAN"))]
    assert len(searches) == 4
    assert all("USING COVERING INDEX" in plan for plan in searches), json.dumps(plans)
