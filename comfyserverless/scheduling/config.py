"""Hold what the scheduling room can be told: policy, fairness, retries, overlap, first guesses of costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

from comfyserverless.core.errors import ConfigError
from comfyserverless.core.ids import TenantId

PolicyName = Literal["vtime", "fifo", "sjf", "round-robin", "request-count"]
"""How it is chosen whose turn it is; all but `vtime` are there to be compared with it."""

POLICY_NAMES: tuple[PolicyName, ...] = get_args(PolicyName)


def policy_named(name: str) -> PolicyName:
    """Return the policy of a name. Raises ConfigError naming those that there are."""
    for policy in POLICY_NAMES:
        if policy == name:
            return policy
    raise ConfigError(f"policy is {name!r}; allowed: {', '.join(POLICY_NAMES)}")


@dataclass(frozen=True, slots=True)
class SchedulingConfig:
    """Set the policy of one `SchedulingState`. Raises ConfigError for a value out of range.

    slack_s: how far a tenant's vTime may lead the least one and still compete (Delta of Algorithm 1).
    grace_s: how long a tenant may be without work and not count as away; what it missed then it may make up,
    beyond the slack up to so many seconds.
    max_attempts: an invocation that lost its worker this often while it ran is abandoned.
    checkpoint_steps: a walk's state is written down every so many steps; 0 for never, None to weigh the time
    that it takes against the time of a step.
    overlap_callbacks: consumers may start while producers of their callback inputs still run elsewhere.
    default_cost_s, default_load_s: estimates of a call and of making weights ready, before any history.
    transfer_penalty_s: what placement adds for each input whose bytes are not on the worker.
    ewma_ratio: share of a new measurement in the running mean. score_window: how many ready invocations,
    over all candidate tenants, are scored per dispatch. tenant_weights: shares of service, 1.0 if not named.
    policy: how the next invocation is chosen.
    """

    slack_s: float
    max_attempts: int = 2
    checkpoint_steps: int | None = 0
    overlap_callbacks: bool = False
    default_cost_s: float = 1.0
    default_load_s: float = 1.0
    transfer_penalty_s: float = 0.01
    ewma_ratio: float = 0.3
    score_window: int = 32
    tenant_weights: Mapping[TenantId, float] = field(default_factory=lambda: MappingProxyType({}))
    policy: PolicyName = "vtime"
    grace_s: float = 0.0

    def __post_init__(self) -> None:
        policy_named(self.policy)
        for name in ("slack_s", "grace_s", "default_cost_s", "default_load_s", "transfer_penalty_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(
                    f"{name} is {getattr(self, name)!r}; allowed: a finite number of seconds, 0 or more"
                )
        for name in ("max_attempts", "score_window"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; allowed: 1 or more")
        if self.checkpoint_steps is not None and self.checkpoint_steps < 0:
            raise ConfigError(f"checkpoint_steps is {self.checkpoint_steps}; allowed: 0 or more")
        if not 0 < self.ewma_ratio <= 1:
            raise ConfigError(f"ewma_ratio is {self.ewma_ratio!r}; allowed: above 0, up to 1")
        for tenant, weight in self.tenant_weights.items():
            if not 0 < weight < float("inf"):
                raise ConfigError(
                    f"weight of tenant {tenant!r} is {weight!r}; allowed: a finite number above 0"
                )
