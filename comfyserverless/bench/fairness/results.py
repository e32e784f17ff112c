"""Sum a policy's shares, differences and waits up, and print them."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from comfyserverless.sim.measures import (
    Service,
    bound_s,
    largest_charge_s,
    leads,
    mean,
    percentile,
    shares,
    thinned,
    widest_s,
)

HEAVY, LIGHT = "heavy", "light"
MOST_FIFO_SHARE = 0.25
"""In one queue the tenant with cheap prompts gets less than this, or the load is not uneven enough."""

_MOMENTS = 60
_SHOWN = 8
_MS = 3


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen under one policy, from when both tenants had work to the end.

    services: charges of the GPU lane, in order, with times in seconds since then; waits_s: by tenant, of each
    prompt that ended: seconds from its sending to its end that were not its own service.
    """

    services: Sequence[Service]
    waits_s: Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class FairnessResult:
    """What came of all policies. is_simulated: on a virtual clock; all times are in seconds of its own then."""

    observed: Mapping[str, Observed]
    slack_s: float
    duration_s: float
    is_simulated: bool
    facts: Mapping[str, object]


def policy_summary(observed: Observed, slack_s: float) -> dict[str, object]:
    """Return the machine-readable figures of one policy; course: [seconds, heavy's service less light's]."""
    course = leads(observed.services, HEAVY, LIGHT)
    parts = shares(observed.services)
    return {
        "service_difference": _rounded(widest_s(course)),
        "bound": _rounded(bound_s(observed.services, slack_s)),
        "largest_charge": _rounded(largest_charge_s(observed.services)),
        "cheap_share": _rounded(parts.get(LIGHT, 0.0)),
        "prompts": {tenant: len(waits_s) for tenant, waits_s in observed.waits_s.items()},
        "light_mean_wait": _rounded(mean(observed.waits_s[LIGHT])),
        "light_p95_wait": _rounded(percentile(observed.waits_s[LIGHT], 0.95)),
        "heavy_mean_wait": _rounded(mean(observed.waits_s[HEAVY])),
        "course": [[_rounded(lead.at_s), _rounded(lead.ahead_s)] for lead in thinned(course, _MOMENTS)],
    }


def summary(result: FairnessResult) -> dict[str, object]:
    """Return the machine-readable result. max_service_difference and bound are those of `vtime`."""
    policies = {name: policy_summary(seen, result.slack_s) for name, seen in result.observed.items()}
    fair = policies.get("vtime", {})
    return {
        "bench": "fairness",
        "simulated": result.is_simulated,
        "max_service_difference": fair.get("service_difference"),
        "bound": fair.get("bound"),
        "cheap_share_fifo": policies.get("fifo", {}).get("cheap_share"),
        "light_p95_wait": {name: each["light_p95_wait"] for name, each in policies.items()},
        "slack": result.slack_s,
        "duration": result.duration_s,
        **result.facts,
        "policies": policies,
    }


def is_as_promised(result: FairnessResult) -> bool:
    """Tell whether `vtime` kept its bound, and the load was uneven enough to tell; of what was measured."""
    shown = {name: policy_summary(seen, result.slack_s) for name, seen in result.observed.items()}
    fair, queue = shown.get("vtime"), shown.get("fifo")
    keeps_bound = fair is None or fair["service_difference"] <= fair["bound"]  # type: ignore[operator]
    return keeps_bound and (queue is None or queue["cheap_share"] < MOST_FIFO_SHARE)  # type: ignore[operator]


def show(result: FairnessResult) -> None:
    """Print a table, the course of the difference, and the result as JSON in the last line."""
    kind = "SIMULATED, " if result.is_simulated else ""
    lines = [
        f"{kind}two tenants on one worker, both with prompts waiting all the time: {result.duration_s:g} s by"
        f" each policy, slack {result.slack_s:g} s",
        ", ".join(f"{name} {value}" for name, value in result.facts.items()),
        f"{'policy':<15}{'difference':>11}{'bound':>8}{'cheap share':>13}{'light waits':>13}{'p95':>10}"
        f"{'heavy waits':>13}",
    ]
    for name, seen in result.observed.items():
        row = policy_summary(seen, result.slack_s)
        waits = [_shown(row["light_mean_wait"]), _shown(row["light_p95_wait"], 8)]
        lines.append(
            f"{name:<15}{row['service_difference']:>9} s{row['bound']:>6} s{row['cheap_share']:>13.1%}"
            f"{waits[0]}{waits[1]}{_shown(row['heavy_mean_wait'])}"
        )
    lines.append("seconds of service that the expensive tenant is ahead, as time goes on:")
    for name, seen in result.observed.items():
        moments = thinned(leads(seen.services, HEAVY, LIGHT), _SHOWN)
        lines.append(f"{name:<15}" + "".join(f"{lead.ahead_s:>9.2f}" for lead in moments))
    sys.stdout.write("\n".join((*lines, json.dumps(summary(result)))) + "\n")


def _shown(value: object, width: int = 11) -> str:
    return f"{'-' if value is None else value:>{width}} s"


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, _MS)
