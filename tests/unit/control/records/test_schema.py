"""Records of an older version are brought up to date at the start, with all that they hold."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from comfyserverless.control.records.changes import NamedFile
from comfyserverless.control.records.schema import VERSION
from comfyserverless.control.records.usage.query import Group, UsageQuery, UsageSpan
from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import DEFAULT_TENANT, NodeId, PromptId, TenantId
from tests.support.records import ids, life, open_at, waiting

BOB = TenantId("bob")
FILE = NamedFile("/o/.x.part", "/o/a_00001_.png", 17, 100, "a_00001_.png", "", "output")


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    """Return a copy of a file that the last release of version 1 wrote."""
    path = tmp_path / "records.sqlite3"
    shutil.copy(Path(__file__).parent / "data/version_1.sqlite3", path)
    return path


def shape(path: Path) -> dict[str, str]:
    """Return the definitions of tables and indexes."""
    with sqlite3.connect(path) as raw:
        rows = raw.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    raw.close()
    return dict(rows)


def test_file_of_version_1_keeps_prompts_history_saves_and_service(version_1: Path) -> None:
    for _ in range(2):
        records, opening = open_at(version_1)
        assert [each.record.prompt_id for each in opening.unfinished] == ["running", "waiting"]
        assert opening.unfinished[0].crashes == 1
        assert opening.unfinished[0].saves == {(NodeId("2"), 0): (FILE,)}
        assert opening.counters == {DEFAULT_TENANT: 3, BOB: 1}
        assert opening.charged_ns == {
            DEFAULT_TENANT: {"gpu": 1_500_000_000, "cpu": 250_000_000},
            BOB: {"gpu": 2_000_000_000, "cpu": 0},
        }
        assert opening.charged_today_ns == {}
        assert ids(records.history(DEFAULT_TENANT, 0, 9)) == ["a"]
        assert records.find(BOB, PromptId("b")) is not None
        records.close()


def test_file_that_was_brought_up_to_date_has_the_tables_of_a_new_one(version_1: Path, tmp_path: Path) -> None:
    for path in (version_1, tmp_path / "new.sqlite3"):
        records, _ = open_at(path)
        records.commit(life(waiting("n")), 0)
        assert records.usage(UsageQuery(None, (Group.PROMPT,)), UsageSpan(0, 9)).rows == []
        records.close()
    assert shape(version_1) == shape(tmp_path / "new.sqlite3")


def test_file_that_cannot_be_brought_up_to_date_stays_as_it_was(version_1: Path) -> None:
    with sqlite3.connect(version_1) as raw:
        raw.execute("CREATE TABLE usage_days (x)")
    raw.close()
    before = shape(version_1)
    records, opening = open_at(version_1)
    assert opening.unfinished == ()
    records.close()
    (aside,) = (
        each for each in version_1.parent.glob("*.damaged-*") if each.suffix[-4:] not in ("-wal", "-shm")
    )
    assert shape(aside) == before


def test_file_of_a_later_version_is_left_alone(version_1: Path) -> None:
    with sqlite3.connect(version_1) as raw:
        raw.execute(f"PRAGMA user_version = {VERSION + 1}")
    raw.close()
    content = version_1.read_bytes()
    with pytest.raises(ConfigError, match="newer version"):
        open_at(version_1)
    assert version_1.read_bytes() == content
