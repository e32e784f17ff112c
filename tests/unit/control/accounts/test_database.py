"""The accounts file keeps what was put into it, shows changes of others, and no token."""

from __future__ import annotations

import sqlite3
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from comfyserverless.control.accounts.account import Account, Limits, new_token, token_digest, token_label
from comfyserverless.control.accounts.database import AccountDatabase, accounts_path, has_accounts
from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import TenantId

ALICE = Account(TenantId("alice"), 2.5, Limits(1, 2, 3, 4.5), ("loras/*", "vae/a'b"), True, True)
BOB = Account(TenantId("bob"))


def test_accounts_come_back_as_they_were_put(tmp_path: Path) -> None:
    database = AccountDatabase(tmp_path / "a.sqlite3")
    database.put(BOB)
    database.put(ALICE)
    assert list(database.read().values()) == [ALICE, BOB]
    database.put(replace(ALICE, models=None))
    assert database.read()[ALICE.tenant].models is None
    database.close()


def test_file_of_the_time_before_a_setting_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    with sqlite3.connect(path) as raw:
        raw.executescript(
            "CREATE TABLE accounts (tenant TEXT PRIMARY KEY, weight REAL NOT NULL, max_queued INTEGER,"
            " max_running INTEGER, max_request_bytes INTEGER, models TEXT, is_operator INTEGER NOT NULL,"
            " is_disabled INTEGER NOT NULL);"
            "INSERT INTO accounts VALUES ('alice', 2.5, 1, 2, 3, NULL, 0, 1)"
        )
    raw.close()
    for _ in range(2):
        database = AccountDatabase(path)
        assert database.read()[ALICE.tenant] == Account(ALICE.tenant, 2.5, Limits(1, 2, 3), is_disabled=True)
        database.close()
    database = AccountDatabase(path)
    database.put(ALICE)
    assert database.read()[ALICE.tenant] == ALICE
    database.close()


def test_tokens_are_added_replaced_and_removed_for_their_tenant_only(tmp_path: Path) -> None:
    database = AccountDatabase(tmp_path / "a.sqlite3")
    database.put(ALICE)
    database.put(BOB)
    digests = [token_digest(new_token()) for _ in range(4)]
    database.add_token(BOB.tenant, digests[0], replaces=False)
    database.add_token(ALICE.tenant, digests[1], replaces=False)
    database.add_token(ALICE.tenant, digests[2], replaces=False)
    assert set(database.read()[ALICE.tenant].tokens) == set(digests[1:3])
    assert database.remove_token(ALICE.tenant, token_label(digests[0])) == 0
    assert database.remove_token(ALICE.tenant, token_label(digests[1])) == 1
    database.add_token(ALICE.tenant, digests[3], replaces=True)
    assert database.read()[ALICE.tenant].tokens == (digests[3],)
    assert database.read()[BOB.tenant].tokens == (digests[0],)
    database.put(BOB)
    assert database.read()[BOB.tenant].tokens == (digests[0],)
    database.close()


def test_change_by_another_process_is_noticed(tmp_path: Path) -> None:
    reader, writer = (AccountDatabase(tmp_path / "a.sqlite3") for _ in range(2))
    before = reader.version()
    assert reader.version() == before
    writer.put(BOB)
    assert reader.version() != before
    assert BOB.tenant in reader.read()
    reader.close()
    writer.close()


def test_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = accounts_path(tmp_path / "user")
    AccountDatabase(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(ConfigError, match=r"a\.sqlite3"):
        AccountDatabase(path)


def test_file_without_accounts_is_like_none(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    assert not has_accounts(path)
    assert not path.exists()
    database = AccountDatabase(path)
    assert not has_accounts(path)
    database.put(BOB)
    assert has_accounts(path)
    database.close()


@pytest.mark.parametrize("change", ["max_queued = 'many'", "models = '{'", "models = '5'", "weight = 'heavy'"])
def test_row_that_was_changed_by_hand_is_a_mistake_that_is_told(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a.sqlite3"
    database = AccountDatabase(path)
    database.put(Account(TenantId("alice")))
    other = sqlite3.connect(path)
    with other:
        other.execute(f"UPDATE accounts SET {change}")
    other.close()
    with pytest.raises(ConfigError, match="no account"):
        database.read()
    database.close()
