"""Name the policies. `vtime` is what the product does; the others are there to be compared with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from comfyserverless.scheduling.config import PolicyName, SchedulingConfig
from comfyserverless.scheduling.policies.base import Policy
from comfyserverless.scheduling.policies.fifo import FifoPolicy
from comfyserverless.scheduling.policies.request_count import RequestCountPolicy
from comfyserverless.scheduling.policies.round_robin import RoundRobinPolicy
from comfyserverless.scheduling.policies.sjf import ShortestJobPolicy
from comfyserverless.scheduling.policies.vtime import VTimePolicy

POLICIES: Mapping[PolicyName, Callable[[SchedulingConfig], Policy]] = {
    "vtime": VTimePolicy,
    "fifo": FifoPolicy,
    "sjf": ShortestJobPolicy,
    "round-robin": RoundRobinPolicy,
    "request-count": RequestCountPolicy,
}


def policy_of(config: SchedulingConfig) -> Policy:
    """Make the policy that a configuration names."""
    return POLICIES[config.policy](config)
