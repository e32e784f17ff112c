"""The tenant command makes, shows and changes accounts, and explains what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyserverless import cli
from comfyserverless.control.accounts.account import Account, Limits, token_digest
from comfyserverless.control.accounts.database import AccountDatabase, accounts_path
from comfyserverless.control.webhooks.signing import FOLDER, TenantSecrets
from comfyserverless.core.ids import TenantId


class Shell:
    """Run `comfyserverless tenant` for one base folder."""

    def __init__(self, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._base = base
        self._capsys = capsys

    def run(self, *words: str) -> tuple[int, str]:
        """Return exit code, and standard output or, after a mistake, standard error."""
        code = cli.main(["tenant", *words, "--base-directory", str(self._base)])
        captured = self._capsys.readouterr()
        return code, captured.out if code == 0 else captured.err

    def account(self, name: str) -> Account:
        database = AccountDatabase(accounts_path(self._base / "user"))
        try:
            return database.read()[TenantId(name)]
        finally:
            database.close()


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, capsys)


def test_added_account_has_its_settings_and_the_token_that_was_shown(shell: Shell) -> None:
    words = (
        "--weight 2 --max-queued 3 --max-running 1 --max-request-size 0.5 --gpu-seconds-per-day 3600.5"
        " --operator --models vae/* loras/*"
    )
    code, out = shell.run("add", "alice", *words.split())
    assert code == 0
    token = next(line for line in out.splitlines() if line.startswith("csl_"))
    assert "after its next start" in out
    digest = token_digest(token)
    expected = Account(
        TenantId("alice"), 2.0, Limits(3, 1, 1 << 19, 3600.5), ("vae/*", "loras/*"), True, False, (digest,)
    )
    assert shell.account("alice") == expected
    assert "after its next start" not in shell.run("add", "bob")[1]


def test_limits_are_changed_one_by_one_and_lifted(shell: Shell) -> None:
    shell.run("add", "alice", "--max-queued", "3", "--weight", "2", "--models", "vae/*", "--operator")
    shell.run("limit", "alice", "--max-running", "5")
    assert shell.account("alice").limits == Limits(3, 5)
    shell.run("limit", "alice", "--max-queued", "none", "--models", "all", "--no-operator")
    changed = shell.account("alice")
    assert (changed.limits, changed.models, changed.weight) == (Limits(None, 5), None, 2.0)
    assert not changed.is_operator
    shell.run("limit", "alice", "--gpu-seconds-per-day", "60")
    assert "gpu-s-per-day=60" in shell.run("list")[1]
    assert shell.account("alice").limits == Limits(None, 5, None, 60.0)
    shell.run("limit", "alice", "--gpu-seconds-per-day", "none")
    assert shell.account("alice").limits == Limits(None, 5)


def test_tokens_are_added_listed_and_ended(shell: Shell) -> None:
    shell.run("add", "alice")
    shell.run("token", "alice")
    listed = shell.run("list")[1]
    first, second = listed.split("tokens=")[1].strip().split(",")
    assert "csl_" not in listed
    assert shell.run("token", "alice", "--revoke", first)[0] == 0
    assert [digest.hex()[:12] for digest in shell.account("alice").tokens] == [second]
    code, err = shell.run("token", "alice", "--revoke", "000000000000")
    assert (code, second in err) == (2, True)
    shell.run("token", "alice", "--replace")
    assert len(shell.account("alice").tokens) == 1
    assert second not in shell.run("list")[1]


def test_account_is_disabled_and_enabled(shell: Shell) -> None:
    shell.run("add", "alice")
    shell.run("disable", "alice")
    assert shell.account("alice").is_disabled
    assert "disabled" in shell.run("list")[1]
    shell.run("enable", "alice")
    assert not shell.account("alice").is_disabled


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("add", "Alice"), "'Alice'"),
        (("add", "known"), "'known' exists"),
        (("add", "new", "--weight", "0"), "weight"),
        (("limit", "nobody"), "there are known"),
        (("disable", "nobody"), "nobody"),
    ],
)
def test_mistake_is_explained_in_one_line(shell: Shell, words: tuple[str, ...], named: str) -> None:
    shell.run("add", "known")
    code, err = shell.run(*words)
    assert code == 2
    assert named in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("action", [("list",), ("token", "a"), ("disable", "a"), ("limit", "a")])
def test_asking_for_accounts_makes_none(shell: Shell, tmp_path: Path, action: tuple[str, ...]) -> None:
    assert shell.run(*action)[0] == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5"])
def test_limit_is_a_whole_number_or_none(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["tenant", "add", "alice", "--max-queued", value])
    assert "`none`" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["0", "-1", "x", "nan", "inf"])
def test_seconds_are_a_number_above_zero_or_none(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["tenant", "limit", "alice", "--gpu-seconds-per-day", value])
    assert "`none`" in capsys.readouterr().err


def test_server_uses_the_accounts_of_its_folder_once_there_are_any(shell: Shell, tmp_path: Path) -> None:
    argv = ["serve", "--base-directory", str(tmp_path)]

    def accounts(*more: str) -> Path | None:
        return cli.server_config(cli.parser().parse_args([*argv, *more]), argv).accounts

    assert accounts() is None
    shell.run("add", "known", "--weight", "0")
    assert accounts() is None
    shell.run("add", "known")
    assert accounts() == accounts_path(tmp_path / "user")
    assert accounts("--tenants", "other.toml") is None


def test_webhook_secret_needs_no_accounts_and_stays_the_same(shell: Shell, tmp_path: Path) -> None:
    code, default = shell.run("webhook-secret", "default")
    assert (code, default[:6]) == (0, "whsec_")
    shell.run("add", "alice")
    assert shell.run("webhook-secret", "default")[1] == default
    assert shell.run("webhook-secret", "alice")[1] not in ("", default)
    assert default.strip() == TenantSecrets(tmp_path / "user" / FOLDER).secret_of(TenantId("default"))
    assert shell.run("webhook-secret", "Bad Name")[0] == 2
