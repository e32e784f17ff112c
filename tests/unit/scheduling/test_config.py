"""Bad settings are refused by name."""

from __future__ import annotations

import pytest

from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import TenantId
from comfyserverless.scheduling.config import SchedulingConfig


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slack_s", -1.0),
        ("slack_s", float("nan")),
        ("default_cost_s", float("inf")),
        ("max_attempts", 0),
        ("score_window", 0),
        ("ewma_ratio", 0.0),
        ("tenant_weights", {TenantId("slack_s"): 0.0}),
    ],
)
def test_a_bad_setting_raises_with_its_name(name: str, value: object) -> None:
    fields = {"slack_s": 1.0, name: value}
    with pytest.raises(ConfigError, match=name if name != "tenant_weights" else "weight of tenant"):
        SchedulingConfig(**fields)  # type: ignore[arg-type]
