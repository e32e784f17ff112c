"""Change accounts from the command line: `comfyserverless tenant add|list|token|...`.

Changes reach a running server within seconds; only the very first account needs a restart of it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from comfyserverless.control.accounts.account import Account, Limits, new_token, token_digest, token_label
from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import TenantId

if TYPE_CHECKING:
    from comfyserverless.control.accounts.database import AccountDatabase

_MIB = 1 << 20
_NO_LIMIT = "none"
WEBHOOK_SECRET = "webhook-secret"
_Number = TypeVar("_Number", int, float)

Arguments = argparse.Namespace


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands and their flags."""
    actions = parser.add_subparsers(dest="action", required=True)
    for name, (help_line, add, _) in ACTIONS.items():
        action = actions.add_parser(name, help=help_line, description=help_line, allow_abbrev=False)
        if name != "list":
            action.add_argument("tenant", metavar="NAME", help="lower-case letters, digits, _ and -")
        add(action)
        action.add_argument(
            "--base-directory", type=Path, default=Path(), metavar="DIR", help="the server's --base-directory"
        )
        action.add_argument(
            "--user-directory", type=Path, metavar="DIR", help="the server's --user-directory, if it has one"
        )


def _add_settings(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--weight", type=float, metavar="W", help="share of service, relative to other tenants (default: 1)")
    add("--max-queued", type=_limit, metavar="N", help="prompts that may wait; `none` for no limit")
    add("--max-running", type=_limit, metavar="N", help="prompts that run at once; `none` for no limit")
    add(
        "--gpu-seconds-per-day",
        type=_seconds,
        metavar="S",
        help="GPU time that it may use on a day (UTC); `none` for no limit",
    )
    add("--max-request-size", type=_megabytes, metavar="MB", help="largest request body; `none` for no limit")
    add(
        "--models",
        nargs="+",
        metavar="PATTERN",
        help="models it may use, such as 'checkpoints/*' 'loras/alice/*'; `all` for every one (default)",
    )
    add(
        "--operator",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="may see the usage of all tenants, all console lines and what workers run",
    )


def _add_token_flags(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--replace", action="store_true", help="end all older tokens of the tenant")
    ways.add_argument("--revoke", metavar="ID", help="end the token that `list` shows with this id; make none")
    ways.add_argument(
        "--toml",
        action="store_true",
        help="print a new token and the lines for a --tenants file; keep nothing",
    )


def _add_nothing(parser: argparse.ArgumentParser) -> None:
    """Add no flags."""


def _limit(text: str) -> int:
    """Read a limit; 0 stands for none, because None is "not given"."""
    if text == _NO_LIMIT:
        return 0
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0, or `{_NO_LIMIT}`")
    return count


def _megabytes(text: str) -> int:
    """Read a size in MB; returns bytes, 0 for no limit."""
    if text == _NO_LIMIT:
        return 0
    try:
        size_bytes = round(float(text) * _MIB)
    except (ValueError, OverflowError):
        size_bytes = 0
    if size_bytes < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, or `{_NO_LIMIT}`")
    return size_bytes


def _seconds(text: str) -> float:
    """Read seconds; 0 for no limit."""
    if text == _NO_LIMIT:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not (math.isfinite(seconds) and seconds > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number above 0, or `{_NO_LIMIT}`")
    return seconds


def run(arguments: Arguments) -> Iterator[str]:
    """Carry a subcommand out; yields the lines to print. Raises ConfigError."""
    if arguments.action == "token" and arguments.toml:
        yield from _show_toml(TenantId(arguments.tenant))
        return
    from comfyserverless.control.accounts.database import AccountDatabase, accounts_path

    folder = arguments.user_directory or arguments.base_directory / "user"
    if arguments.action == WEBHOOK_SECRET:
        yield from _show_webhook_secret(folder, TenantId(arguments.tenant))
        return
    path = accounts_path(folder)
    if arguments.action != "add" and not path.exists():
        raise ConfigError(f"no accounts are in {path.parent}; `comfyserverless tenant add NAME` makes one")
    database = AccountDatabase(path)
    try:
        yield from ACTIONS[arguments.action][2](database, arguments)
    finally:
        database.close()


def _add(database: AccountDatabase, arguments: Arguments) -> Iterator[str]:
    accounts = database.read()
    tenant = TenantId(arguments.tenant)
    if tenant in accounts:
        raise ConfigError(f"tenant {tenant!r} exists; change it with `tenant limit` or `tenant token`")
    database.put(_changed(Account(tenant), arguments))
    yield from _new_token(database, tenant, replaces=True)
    if not accounts:
        yield "This is the first account: a server that runs already asks for tokens after its next start."


def _list(database: AccountDatabase, arguments: Arguments) -> Iterator[str]:
    accounts = database.read()
    for account in accounts.values():
        yield _line(account)


def _line(account: Account) -> str:
    limits = account.limits
    shown: list[tuple[str, object]] = [
        ("weight", f"{account.weight:g}"),
        ("queued", limits.max_queued),
        ("running", limits.max_running),
        ("request-mb", None if limits.max_request_bytes is None else f"{limits.max_request_bytes / _MIB:g}"),
        ("gpu-s-per-day", None if limits.max_gpu_s_per_day is None else f"{limits.max_gpu_s_per_day:g}"),
        ("models", None if account.models is None else ",".join(account.models)),
        ("tokens", ",".join(map(token_label, account.tokens)) or "none"),
    ]
    words = [f"{name}={value}" for name, value in shown if value is not None]
    words += ["operator"] * account.is_operator + ["disabled"] * account.is_disabled
    return f"{account.tenant:<20} {' '.join(words)}"


def _token(database: AccountDatabase, arguments: Arguments) -> Iterator[str]:
    account = _existing(database, arguments)
    if arguments.revoke is None:
        yield from _new_token(database, account.tenant, replaces=arguments.replace)
        return
    labels = [token_label(digest) for digest in account.tokens]
    if arguments.revoke not in labels:
        raise ConfigError(
            f"tenant {account.tenant!r} has no token {arguments.revoke!r}; it has {', '.join(labels) or 'none'}"
        )
    database.remove_token(account.tenant, arguments.revoke)
    yield f"Token {arguments.revoke} of {account.tenant} has ended."


def _disable(database: AccountDatabase, arguments: Arguments) -> Iterator[str]:
    account = replace(_existing(database, arguments), is_disabled=True)
    database.put(account)
    yield f"{account.tenant} is disabled: its tokens are refused, and what it has queued is dropped."


def _enable(database: AccountDatabase, arguments: Arguments) -> Iterator[str]:
    account = replace(_existing(database, arguments), is_disabled=False)
    database.put(account)
    yield f"{account.tenant} is enabled."


def _set_limits(database: AccountDatabase, arguments: Arguments) -> Iterator[str]:
    account = _changed(_existing(database, arguments), arguments)
    database.put(account)
    yield _line(account)


def _existing(database: AccountDatabase, arguments: Arguments) -> Account:
    accounts = database.read()
    account = accounts.get(TenantId(arguments.tenant))
    if account is None:
        raise ConfigError(
            f"there is no tenant {arguments.tenant!r}; there are {', '.join(accounts) or 'no tenants'}"
        )
    return account


def _changed(account: Account, arguments: Arguments) -> Account:
    """Return an account with the settings that were given. Raises ConfigError."""
    limits = account.limits

    def chosen(given: _Number | None, present: _Number | None) -> _Number | None:
        return present if given is None else given or None

    models = account.models
    if arguments.models is not None:
        models = None if arguments.models == ["all"] else tuple(arguments.models)
    return replace(
        account,
        weight=account.weight if arguments.weight is None else arguments.weight,
        limits=Limits(
            chosen(arguments.max_queued, limits.max_queued),
            chosen(arguments.max_running, limits.max_running),
            chosen(arguments.max_request_size, limits.max_request_bytes),
            chosen(arguments.gpu_seconds_per_day, limits.max_gpu_s_per_day),
        ),
        models=models,
        is_operator=account.is_operator if arguments.operator is None else arguments.operator,
    )


def _new_token(database: AccountDatabase, tenant: TenantId, *, replaces: bool) -> Iterator[str]:
    token = new_token()
    database.add_token(tenant, token_digest(token), replaces=replaces)
    yield f"Token of {tenant} (it is shown only now):"
    yield token


def _show_toml(tenant: TenantId) -> Iterator[str]:
    Account(tenant)  # refuses a bad name
    token = new_token()
    yield f"# token of {tenant} (it is shown only now): {token}"
    yield f"[tenants.{tenant}]"
    yield f'token_sha256 = ["{token_digest(token).hex()}"]'


def _show_webhook_secret(user_folder: Path, tenant: TenantId) -> Iterator[str]:
    """Show what signs the webhooks of a tenant; a server without accounts has the tenant `default`."""
    from comfyserverless.control.webhooks.signing import FOLDER, TenantSecrets

    Account(tenant)  # refuses a bad name
    yield TenantSecrets(user_folder / FOLDER).secret_of(tenant)


def _do_nothing(database: AccountDatabase, arguments: Arguments) -> Iterator[str]:
    """Do nothing: the subcommand needs no accounts and is done before they are opened."""
    return iter(())


Action = tuple[
    str,
    Callable[[argparse.ArgumentParser], None],
    "Callable[[AccountDatabase, Arguments], Iterator[str]]",
]

#: Name -> (one line of help, adds its flags, carries it out).
ACTIONS: dict[str, Action] = {
    "add": ("make an account and its first token", _add_settings, _add),
    "list": ("show the accounts", _add_nothing, _list),
    "token": ("make another token for an account, or end one", _add_token_flags, _token),
    "disable": ("refuse an account's tokens and drop its prompts", _add_nothing, _disable),
    "enable": ("let a disabled account in again", _add_nothing, _enable),
    "limit": ("change an account's share, limits and models", _add_settings, _set_limits),
    WEBHOOK_SECRET: ("show what a tenant's webhooks are signed with", _add_nothing, _do_nothing),
}
