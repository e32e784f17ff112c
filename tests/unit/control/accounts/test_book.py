"""The book recognises tokens, and sees changes at the next look."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

import pytest

from comfyserverless.control.accounts.account import Account, new_token, token_digest
from comfyserverless.control.accounts.book import AccountBook
from comfyserverless.control.accounts.source import Accounts
from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import TenantId
from tests.support.tenants import FixedAccounts

TOKEN = new_token()
ALICE = Account(TenantId("alice"), tokens=(token_digest(TOKEN),))
BOB = Account(TenantId("bob"), tokens=(token_digest(new_token()),))


def test_token_is_recognised_and_others_are_not() -> None:
    book = AccountBook(FixedAccounts(BOB, ALICE))
    assert book.authenticate(TOKEN) == ALICE
    for wrong in ("", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "x" * 100_000):
        assert book.authenticate(wrong) is None


def test_change_is_seen_at_the_next_look() -> None:
    source = FixedAccounts(ALICE)
    book = AccountBook(source)
    source.change(replace(ALICE, is_disabled=True))
    assert book.authenticate(TOKEN) is None
    assert book.find(ALICE.tenant) is None
    source.change(ALICE, BOB)
    assert book.authenticate(TOKEN) == ALICE
    source.change(BOB)
    assert book.authenticate(TOKEN) is None


def test_accounts_that_cannot_be_read_any_more_stay_as_they_were(caplog: pytest.LogCaptureFixture) -> None:
    source = FixedAccounts(ALICE)
    book = AccountBook(source)
    source.change(BOB)

    def fail() -> Accounts:
        raise ConfigError("half written")

    source.read = fail  # type: ignore[method-assign]
    with caplog.at_level(logging.ERROR):
        assert book.authenticate(TOKEN) == ALICE
    assert "half written" in caplog.text


def test_change_that_could_not_be_read_is_seen_once_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    source = FixedAccounts(ALICE)
    book = AccountBook(source)
    source.change(BOB)
    read, looks = source.read, 0

    def fail() -> Accounts:
        nonlocal looks
        looks += 1
        raise ConfigError("database is locked")

    monkeypatch.setattr(source, "read", fail)
    for _ in range(5):
        assert book.authenticate(TOKEN) == ALICE
    assert looks == 1  # a look that fails may take its time
    monkeypatch.setattr(source, "read", read)
    clock += 1.0
    assert book.authenticate(TOKEN) is None
