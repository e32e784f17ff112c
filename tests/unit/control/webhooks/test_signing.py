"""Every tenant has a secret of its own that stays the same, and calls are signed with it."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from comfyserverless.control.webhooks.signing import HEADER, TenantSecrets, signature
from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import TenantId
from tests.support.webhooks import is_signed

ALICE, BOB = TenantId("alice"), TenantId("bob")


def test_secrets_differ_by_tenant_and_server_and_last(tmp_path: Path) -> None:
    first = TenantSecrets(tmp_path / "one")
    assert first.secret_of(ALICE).startswith("whsec_")
    assert first.secret_of(ALICE) != first.secret_of(BOB)
    assert TenantSecrets(tmp_path / "one").secret_of(ALICE) == first.secret_of(ALICE)
    assert TenantSecrets(tmp_path / "two").secret_of(ALICE) != first.secret_of(ALICE)


def test_key_is_readable_by_nobody_else(tmp_path: Path) -> None:
    TenantSecrets(tmp_path / "hooks").secret_of(ALICE)
    (key,) = (tmp_path / "hooks").iterdir()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_two_who_make_the_key_at_once_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: TenantSecrets(tmp_path / "x").secret_of(ALICE), range(16)))
    assert len(set(found)) == 1


def test_broken_key_is_said(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(ConfigError, match="32 bytes"):
        TenantSecrets(tmp_path).secret_of(ALICE)


def test_signature_holds_for_one_body_time_and_secret() -> None:
    headers = {HEADER: signature("secret", 1_700_000_000, b"body")}
    assert headers[HEADER].startswith("t=1700000000,v1=")
    assert is_signed(headers, b"body", "secret")
    assert not is_signed(headers, b"other", "secret")
    assert not is_signed(headers, b"body", "other")
    assert not is_signed({HEADER: headers[HEADER].replace("t=17", "t=18")}, b"body", "secret")
