"""PostgreSQL keeps the contract of records, also when it goes away, comes back, or was killed in a commit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from comfyserverless.bench.server import crash
from comfyserverless.control.metering.amounts import Amounts, DayKey
from comfyserverless.control.records import store as store_module
from comfyserverless.control.records.base import Backend, DatabaseAwayError, Opening, Retention
from comfyserverless.control.records.changes import Accepted, Change, UsageAdded
from comfyserverless.control.records.opening import is_address
from comfyserverless.control.records.postgres import link as link_module
from comfyserverless.control.records.postgres import schema as schema_module
from comfyserverless.control.records.postgres.backend import PostgresRecords, open_database
from comfyserverless.control.records.postgres.link import Link
from comfyserverless.control.records.schema import connect_memory
from comfyserverless.control.records.store import RecordStore
from comfyserverless.core.errors import CapacityError, ConfigError
from comfyserverless.core.ids import DEFAULT_TENANT, PromptId
from tests.support.client import Client
from tests.support.holding import held
from tests.support.postgres import PASSWORD, SECRET, Cluster, running_cluster
from tests.support.records import ids, life, waiting
from tests.support.records_contract import Place, RecordsContract
from tests.support.server import PATIENCE_S, RunningServer, ServerOptions
from tests.support.striking import until

HELD = r"Another server \(comfyserverless \w+ writer \d+@.* uses the database"
A = PromptId("a")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Return a cluster; it is running at the start of every test."""
    with running_cluster() as running:
        yield running


class Database(Place):
    """An empty database of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.name = cluster.new_database()
        self.address = cluster.address(self.name)

    def open(self, retention: Retention | None = None, now_ms: int = 0) -> tuple[PostgresRecords, Opening]:
        return open_database(self.address, retention or Retention(), now_ms)

    def rows(self, statement: str) -> list[Any]:
        with psycopg.connect(self.address, options="-c search_path=comfyserverless") as connection:
            return connection.execute(statement.encode()).fetchall()

    def end_sessions(self) -> None:
        """End all connections, as a network does that breaks."""
        theirs = f"FROM pg_stat_activity WHERE datname = '{self.name}'"
        deadline_s = time.monotonic() + 240
        self.cluster.admin(f"SELECT pg_terminate_backend(pid) {theirs}")
        while self.cluster.admin(f"SELECT pid {theirs}"):
            assert time.monotonic() < deadline_s
            time.sleep(0.02)


@pytest.fixture
def place(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr(link_module, "_CALM_S", 0.0)
    monkeypatch.setattr(schema_module, "_LOCK_WITHIN_S", 120.0)
    return Database(cluster)


@contextlib.contextmanager
def wait_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Do not wait for long for a lock that nobody lets go of."""
    with monkeypatch.context() as impatient:
        impatient.setattr(schema_module, "_LOCK_WITHIN_S", 1.0)
        yield


@pytest.fixture
def records(place: Database) -> Iterator[PostgresRecords]:
    opened, _ = place.open()
    yield opened
    opened.close()


class TestPostgres(RecordsContract):
    """Run the contract on a database."""


def history(records: Backend) -> list[str]:
    return ids(records.history(DEFAULT_TENANT, 0, 99))


def test_second_server_is_refused_and_told_who_uses_the_database(
    place: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = place.open()
    with wait_for_a_moment_only(monkeypatch), pytest.raises(ConfigError, match=HELD):
        place.open()
    first.commit(life(waiting("a")), 0)
    first.close()
    second, _ = place.open()
    assert history(second) == ["a"]
    second.close()


def test_everything_goes_on_after_the_database_was_restarted(place: Database, records: PostgresRecords) -> None:
    records.commit([*life(waiting("a")), Accepted(waiting("w"), 1)], 0)
    for end in (place.cluster.crash, place.cluster.stop):
        end()
        for ask in (lambda: records.commit(life(waiting("b")), 0), lambda: history(records)):
            with pytest.raises(DatabaseAwayError, match="cannot be reached now"):
                ask()
        place.cluster.start()
        assert history(records)[:1] == ["a"]
        records.commit(life(waiting(f"after_{end.__name__}")), 0)
    assert history(records) == ["a", "after_crash", "after_stop"]


def test_lost_connections_of_an_idle_server_cost_nobody_anything(
    place: Database, records: PostgresRecords
) -> None:
    records.commit(life(waiting("a")), 0)
    place.end_sessions()
    records.commit(life(waiting("b")), 0)
    place.end_sessions()
    assert history(records) == ["a", "b"]


def lose_commit(monkeypatch: pytest.MonkeyPatch, *, happens: bool) -> None:
    """Lose the connection at the next commit: before the database has heard of it, or before its answer."""
    run = Link.run

    def lost(self: Link, sql: str, values: Sequence[Any] = (), /) -> Any:
        if sql != "COMMIT":
            return run(self, sql, values)
        monkeypatch.setattr(Link, "run", run)
        if happens:
            run(self, sql)
        self.drop()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(Link, "run", lost)


@pytest.mark.parametrize("happens", [True, False])
def test_commit_whose_answer_was_lost_is_neither_repeated_nor_forgotten(
    place: Database, records: PostgresRecords, monkeypatch: pytest.MonkeyPatch, happens: bool
) -> None:
    used = UsageAdded({DayKey(DEFAULT_TENANT, 7, "gpu", "f"): Amounts(calls=1, compute_ns=1)}, {})
    noted: list[Change] = [*life(waiting("a")), used]
    lose_commit(monkeypatch, happens=happens)
    with pytest.raises(DatabaseAwayError):
        records.commit([*noted, Accepted(waiting("refused"), 1)], 0)
    lose_commit(monkeypatch, happens=happens)
    with pytest.raises(DatabaseAwayError):
        records.commit([*noted, used_again := UsageAdded(used.days, {})], 0)
    records.commit([*noted, used_again, *life(waiting("b"))], 0)
    records.commit([UsageAdded(used.days, {})], 0)
    assert history(records) == ["a", "b"]
    records.close()
    reopened, opening = place.open()
    assert opening.unfinished == (), "whoever sent it was told that it was not accepted"
    assert opening.charged_ns == {DEFAULT_TENANT: {"gpu": 3}}
    reopened.close()


async def test_store_keeps_what_ends_while_the_database_is_away(
    place: Database, records: PostgresRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_RETRY_S", 0.05)
    store = RecordStore(records)
    accepted, started, end = life(waiting("a"))
    await store.write(accepted)
    place.cluster.crash()
    store.note(started)
    with pytest.raises(DatabaseAwayError):
        await store.write(Accepted(waiting("b"), 1))
    store.note(end)
    place.cluster.start()
    deadline_s = time.monotonic() + 240
    found: list[str] = []
    while found != ["a"] and time.monotonic() < deadline_s:
        with contextlib.suppress(CapacityError):
            found = await store.read(history)
    assert found == ["a"]
    store.close()


def test_server_that_was_replaced_writes_nothing_any_more(
    place: Database, records: PostgresRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    records.commit(life(waiting("a")), 0)
    place.end_sessions()
    other, _ = place.open()
    with (
        wait_for_a_moment_only(monkeypatch),
        pytest.raises(DatabaseAwayError, match="is held by comfyserverless"),
    ):
        records.commit(life(waiting("mine")), 0)
    other.close()
    for _ in range(2):
        with pytest.raises(CapacityError, match="Another server has used the database"):
            records.commit(life(waiting("mine")), 0)
    assert history(records) == ["a"]


def test_session_that_the_database_has_not_missed_yet_is_ended(records: PostgresRecords) -> None:
    records.commit(life(waiting("a")), 0)
    held, records._writing._connection = records._writing._connection, None  # the network lost it
    records.commit(life(waiting("b")), 0)
    assert history(records) == ["a", "b"]
    assert held is not None
    held.close()


def test_commits_survive_a_loss_of_power_also_where_the_database_is_set_otherwise(
    cluster: Cluster, place: Database
) -> None:
    cluster.admin(f"ALTER DATABASE {place.name} SET synchronous_commit = off")
    records, _ = place.open()
    assert records._writing.run("SHOW synchronous_commit").fetchone() == ("on",)
    records.close()


def test_tables_of_a_newer_version_are_left_alone(place: Database) -> None:
    records, _ = place.open()
    records.close()
    place.rows("UPDATE meta SET version = 99 RETURNING 1")
    with pytest.raises(ConfigError, match="newer version of comfyserverless"):
        place.open()
    assert place.rows("SELECT version FROM meta") == [(99,)]


def test_tables_have_the_columns_that_they_have_in_sqlite(place: Database, records: PostgresRecords) -> None:
    ours = connect_memory()
    tables = [name for (name,) in ours.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    in_sqlite = {
        table: [row[1] for row in ours.execute(f"PRAGMA table_info({table})")] for table in sorted(tables)
    }
    ours.close()
    found = place.rows(
        "SELECT table_name::text, array_agg(column_name::text ORDER BY ordinal_position)"
        " FROM information_schema.columns WHERE table_schema = 'comfyserverless' AND table_name <> 'meta'"
        " GROUP BY table_name ORDER BY table_name"
    )
    assert dict(found) == in_sqlite


@pytest.mark.parametrize(
    "make",
    [
        lambda port: f"postgresql://me:{PASSWORD}@127.0.0.1:{port}/x",
        lambda port: f"postgresql://me:{PASSWORD}@127.0.0.1:{port}bad/x",
        lambda port: f"postgresql://me:{PASSWORD}%@127.0.0.1:{port}/x",
        lambda port: f"postgresql://127.0.0.1:{port}/x?user=me&password={PASSWORD}",
        lambda _: f"postgresql://me:{PASSWORD}@127.0.0.1:1/x",
    ],
    ids=["refused", "port", "escape", "query", "nobody"],
)
def test_password_is_in_no_error(
    cluster: Cluster, make: Callable[[int], str], caplog: pytest.LogCaptureFixture
) -> None:
    address = make(cluster.port)
    assert is_address(address)
    with caplog.at_level(logging.DEBUG), pytest.raises(ConfigError) as raised:
        open_database(address, Retention(), 0)
    said = caplog.text
    error: BaseException | None = raised.value
    while error is not None:
        said += f"{error!s} {error!r}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    for secret in (PASSWORD, SECRET):
        assert secret not in said


def picture_graph(side_px: int) -> dict[str, Any]:
    """Return a graph that saves two pictures."""
    size = {"width": side_px, "height": side_px, "batch_size": 2, "color": 255}
    return {
        "1": {"class_type": "EmptyImage", "inputs": size},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
    }


async def is_running(client: Client, prompt_id: str) -> bool:
    return prompt_id in [item[1] for item in (await client.get("/queue"))["queue_running"]]


async def test_server_goes_on_while_its_database_is_away_and_tells_nobody_the_password(
    cluster: Cluster, place: Database, tmp_path: Path
) -> None:
    flags = ("--workers", "1", "--database", cluster.new_login(place.name))
    server = RunningServer.start(ServerOptions(tmp_path / "base", flags=flags))
    try:
        async with Client(server.url) as client:
            await client.wait_for_workers()
            # So its pictures are not drawn before the database is away.
            with held(*[worker["pid"] for worker in await client.wait_for_workers()]):
                running = await client.submit(picture_graph(64))
                await until(lambda: is_running(client, running))
                cluster.crash()
            status, answer = await client.post("/prompt", {"prompt": picture_graph(32)})
            assert (status, answer["error"]["type"]) == (503, "capacity")
            assert "cannot be reached now" in answer["error"]["message"]
            while not list(server.folder("output").glob("*.part")):  # it has drawn, and cannot name its files
                assert (await client.get("/queue"))["queue_running"]
                await asyncio.sleep(0.05)
            await asyncio.to_thread(cluster.start)
            history: dict[str, Any] = {}
            async with asyncio.timeout(PATIENCE_S):
                while running not in history:
                    await asyncio.sleep(0.1)
                    with contextlib.suppress(AssertionError):  # a reader may be told 503 once more
                        history = await client.get("/history")
            assert history.keys() == {running}
            assert history[running]["status"]["completed"]
            assert len(list(server.folder("output").glob("*.png"))) == 2
            shown = json.dumps([await client.get("/system_stats"), history, answer])
    finally:
        server.stop()
    for secret in (SECRET, PASSWORD, json.dumps(SECRET)[1:-1]):
        assert secret not in shown + server.log()


@pytest.mark.timeout(1800)
def test_nothing_is_lost_when_servers_and_their_database_are_killed(cluster: Cluster, place: Database) -> None:
    def crash_for_a_moment() -> None:
        cluster.crash()
        time.sleep(0.5)
        cluster.start()

    found = crash.measure(crash.CrashOptions(kills=4, seed=1, database=place.address), crash_for_a_moment)
    assert crash.is_clean(found), found
    assert found["moments"]["database"] > 1
    assert found["accepted"] > 10


def test_server_without_an_address_loads_no_driver_and_one_without_a_driver_names_the_extra(
    tmp_path: Path,
) -> None:
    code = (
        "import sys; import comfyserverless.server.main; assert 'psycopg' not in sys.modules;"
        "sys.modules['psycopg'] = None; from comfyserverless.cli import main;"
        f"sys.exit(main(['serve', '--port', '0', '--base-directory', {str(tmp_path)!r},"
        " '--database', 'postgresql://me:secret@h/d']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2
    assert "pip install 'comfyserverless[postgres]'" in done.stderr
    assert "secret" not in done.stderr
