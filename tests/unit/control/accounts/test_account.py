"""Accounts hold digests and sane values only."""

from __future__ import annotations

import pytest

from comfyserverless.control.accounts.account import Account, Limits, new_token, token_digest, token_label
from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import TenantId


def test_account_knows_its_tokens_and_no_others() -> None:
    first, second = new_token(), new_token()
    account = Account(TenantId("alice"), tokens=(token_digest(first), token_digest(second)))
    assert account.holds(token_digest(second))
    assert not account.holds(token_digest(new_token()))
    assert first not in repr(account)


def test_token_of_any_text_has_a_digest() -> None:
    assert len(token_digest("\udcff é")) == 32
    assert token_label(token_digest("a")) == token_digest("a").hex()[:12]


@pytest.mark.parametrize("name", ["", "Alice", "a/b", "..", ".a", "a b", "-a", "a" * 64, "é", "a\n"])
def test_name_that_is_no_safe_folder_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="tenant name"):
        Account(TenantId(name))


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf"), 1e-320, 1e308, 10**400])
def test_weight_is_a_number_that_service_can_be_divided_by(weight: float) -> None:
    with pytest.raises(ConfigError, match="weight"):
        Account(TenantId("a"), weight=weight)


@pytest.mark.parametrize("field", ["max_queued", "max_running", "max_request_bytes"])
def test_limit_of_nothing_is_refused(field: str) -> None:
    for value in (0, 2**63, 10**400):
        with pytest.raises(ConfigError, match=field):
            Limits(**{field: value})


@pytest.mark.parametrize("day_s", [0.0, -1.0, float("nan"), float("inf"), 10**400])
def test_seconds_per_day_are_finite_and_above_zero(day_s: float) -> None:
    with pytest.raises(ConfigError, match="max_gpu_s_per_day"):
        Limits(max_gpu_s_per_day=day_s)
    assert Limits(max_gpu_s_per_day=0.5).max_gpu_s_per_day == 0.5
