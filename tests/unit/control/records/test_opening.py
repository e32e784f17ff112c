"""Whatever lies where the records should be, the server starts, or says clearly why not."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import pytest

from comfyserverless.control.records.base import RecordQuery, Retention
from comfyserverless.control.records.changes import Accepted
from comfyserverless.control.records.opening import open_file, open_records
from comfyserverless.control.views import RunStatus
from comfyserverless.core.config import EngineConfig, Folders
from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import DEFAULT_TENANT
from tests.support.records import ids, life, open_at, waiting


def filled(path: Path, count: int = 50) -> None:
    records, _ = open_at(path)
    for nth in range(count):
        records.commit(life(waiting(f"p{nth}")), 0)
    records.commit([Accepted(waiting("w"), 0)], 0)
    records.close()


def damage_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3 : 2 * len(content) // 3] = b"\x5a" * (len(content) // 3)
    path.write_bytes(content)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 3 * 4096 + 17])


def drop_a_table(path: Path) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute("DROP TABLE saves")
    raw.close()


@pytest.mark.parametrize(
    "harm",
    [lambda path: path.write_bytes(b"not a database" * 400), damage_middle, cut_short, drop_a_table],
    ids=["foreign", "middle", "short", "table"],
)
def test_damaged_file_is_moved_aside_and_an_empty_one_takes_its_place(
    tmp_path: Path,
    harm: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "records.sqlite3"
    filled(path)
    assert callable(harm)
    harm(path)
    content = path.read_bytes()
    with caplog.at_level(logging.ERROR):
        records, opening = open_at(path)
    assert (opening.unfinished, records.history_count(DEFAULT_TENANT)) == ((), 0)
    records.commit(life(waiting("new")), 0)
    records.close()
    (aside,) = (each for each in tmp_path.iterdir() if "damaged" in each.name and each.suffix[-3:] != "wal")
    assert aside.read_bytes() == content
    assert f"{path} is damaged" in caplog.text
    assert str(aside) in caplog.text


def test_damage_within_one_prompt_costs_that_prompt_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "records.sqlite3"
    filled(path, 3)
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE prompts SET request = x'00', result = x'1234' WHERE prompt_id = 'p1'")
        raw.execute("UPDATE prompts SET request = x'00' WHERE prompt_id = 'w'")
    raw.close()
    records, opening = open_at(path)
    history = records.history(DEFAULT_TENANT, 0, 9)
    assert ids(history) == ["p0", "p1", "p2"]
    assert [bool(record.prompt) for record in history] == [True, False, True]
    assert [record.status for record in history] == [RunStatus.SUCCESS] * 3
    assert opening.unfinished[0].record.prompt == {}
    assert "p1 cannot be read" in caplog.text
    records.close()


def test_records_of_a_newer_version_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite3"
    filled(path)
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(ConfigError, match="newer version"):
        open_at(path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_place_that_cannot_hold_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="file/records"):
        open_file(tmp_path / "file/records", Retention(), 0)
    with pytest.raises(ConfigError, match=str(tmp_path)):
        open_file(tmp_path, Retention(), 0)


def test_records_in_memory_leave_no_file(tmp_path: Path) -> None:
    folders = Folders(tmp_path, (), *(tmp_path / name for name in ("i", "o", "t", "u", "c")))
    records, _ = open_records(EngineConfig(folders, database="memory", history_limit=1), 0)
    records.commit([*life(waiting("a")), *life(waiting("b"))], 0)
    assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["b"]
    records.close()
    assert list(tmp_path.iterdir()) == []
    records, _ = open_records(EngineConfig(folders, database=str(tmp_path / "mine.db")), 0)
    records.close()
    assert (tmp_path / "mine.db").exists()


def test_records_of_version_2_get_the_index_by_workflow(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite3"
    filled(path, 3)
    with sqlite3.connect(path) as raw:
        raw.executescript("DROP INDEX history_by_workflow; PRAGMA user_version = 2;")
    raw.close()
    records, _ = open_at(path)
    query = RecordQuery(DEFAULT_TENANT, frozenset(RunStatus), "w")
    assert records.count(query) == 3
    records.close()
