"""A TOML file of tenants is read whole or refused by the name of what is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from comfyserverless.control.accounts.account import Limits, token_digest
from comfyserverless.control.accounts.source import AccountFile
from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import TenantId


def test_every_key_reaches_the_account(tmp_path: Path) -> None:
    file = tmp_path / "tenants.toml"
    digest = token_digest("token")
    file.write_text(
        f'[tenants.alice]\ntoken_sha256 = ["{digest.hex()}"]\nweight = 2\nmax_queued = 3\nmax_running = 1\n'
        'max_request_mb = 0.5\ngpu_seconds_per_day = 60\nmodels = ["loras/*"]\noperator = true\n'
        "[tenants.bob]\ndisabled = true\n"
    )
    accounts = AccountFile(file).read()
    alice, bob = accounts[TenantId("alice")], accounts[TenantId("bob")]
    assert (alice.weight, alice.limits, alice.models) == (2.0, Limits(3, 1, 1 << 19, 60), ("loras/*",))
    assert (alice.tokens, alice.is_operator, alice.is_disabled) == ((digest,), True, False)
    assert (bob.weight, bob.limits, bob.models, bob.tokens, bob.is_disabled) == (1.0, Limits(), None, (), True)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[tenants.alice", "tenants.toml"),
        ("[tenant.alice]\n", "unknown tables tenant"),
        ("tenants = 3\n", "one table per tenant"),
        ("[tenants]\nalice = 1\n", "'alice' must be a table"),
        ("[tenants.alice]\nheft = 1\n", "heft"),
        ("[tenants.alice]\nweight = true\n", "weight is True"),
        ("[tenants.alice]\nmax_queued = 1.5\n", "max_queued"),
        ("[tenants.alice]\nmax_queued = 0\n", "max_queued"),
        ("[tenants.alice]\ngpu_seconds_per_day = nan\n", "gpu"),
        ("[tenants.alice]\ngpu_seconds_per_day = '1h'\n", "gpu_seconds_per_day"),
        ("[tenants.alice]\nmodels = 'all'\n", "models must be a list"),
        ("[tenants.alice]\ntoken_sha256 = ['ab']\n", "SHA-256"),
        ("[tenants.Alice]\n", "tenant name 'Alice'"),
        ("", "no tenant"),
        ("[tenants.alice]\nmax_request_mb = inf\n", "max_request_mb"),
        ("[tenants.alice]\nmax_request_mb = nan\n", "max_request_mb"),
        (f"[tenants.alice]\nweight = 1{'0' * 400}\n", "weight"),
        (f"[tenants.alice]\ngpu_seconds_per_day = 1{'0' * 400}\n", "gpu_seconds_per_day"),
        (f"[tenants.alice]\nmax_queued = 1{'0' * 5000}\n", "digits"),
        (f"x = {'[' * 5000}", "nested too deep"),
        (
            f"[tenants.alice]\ntoken_sha256 = ['{'ab' * 32}']\n[tenants.bob]\ntoken_sha256 = ['{'AB' * 32}']\n",
            "'alice' and 'bob' have the same token",
        ),
    ],
)
def test_mistake_is_named_with_its_file(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "tenants.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=named) as caught:
        AccountFile(file).read()
    assert str(file) in str(caught.value)


def test_token_that_was_written_instead_of_its_digest_is_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "tenants.toml"
    file.write_text('[tenants.alice]\ntoken_sha256 = ["csl_secret"]\n')
    with pytest.raises(ConfigError, match="not hexadecimal") as caught:
        AccountFile(file).read()
    assert "csl_secret" not in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    file = AccountFile(tmp_path / "none.toml")
    assert file.version() is None
    with pytest.raises(ConfigError, match=r"none\.toml"):
        file.read()


def test_version_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text("")
    file = AccountFile(path)
    before = file.version()
    assert file.version() == before
    os.utime(path, ns=(1, 1))
    assert file.version() != before
