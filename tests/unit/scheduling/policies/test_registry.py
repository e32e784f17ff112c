"""The names of the policies."""

from __future__ import annotations

import pytest

from comfyserverless.core.errors import ConfigError
from comfyserverless.scheduling.config import POLICY_NAMES, SchedulingConfig
from comfyserverless.scheduling.policies.registry import POLICIES


def test_every_name_has_a_policy_and_vtime_is_what_is_used_unless_told() -> None:
    assert tuple(POLICIES) == POLICY_NAMES
    assert SchedulingConfig(slack_s=0.0).policy == "vtime"


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="policy is 'lottery'; allowed: vtime, fifo, sjf"):
        SchedulingConfig(slack_s=0.0, policy="lottery")  # type: ignore[arg-type]
