"""Let an expensive and a cheap tenant keep a real server busy, under one policy after the other.

Both always have prompts waiting. Each policy gets a server of its own, with one worker, which is warmed up
first: weights are loaded and costs are known before anything counts. What was served is read from the server's
log of stays, so it is the seconds that workers measured and tenants were charged for.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from comfyserverless.bench.fairness.results import HEAVY, LIGHT, FairnessResult, Observed
from comfyserverless.bench.fairness.stays import Stay, StayReader
from comfyserverless.bench.fairness.tenant import BusyTenant, Caller
from comfyserverless.bench.serving import BenchError, served
from comfyserverless.bench.workload import Workload
from comfyserverless.control.accounts.account import new_token, token_digest
from comfyserverless.core.config import GRACE_S
from comfyserverless.sim.measures import Service

LIGHT_STEPS = 8
HEAVY_IMAGES = 8
_OPERATOR = "operator"
_OUTSTANDING = 4
_POLL_S = 0.1
_READ_EVERY_S = 2.0
_WARM_WITHIN_S = 300.0
_WARM_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class FairnessOptions:
    """What to measure. workload: of the expensive tenant, in each of its pictures."""

    workload: Workload
    policies: Sequence[str]
    slack_s: float
    duration_s: float


def measure(options: FairnessOptions, tell: Callable[[str], None]) -> FairnessResult:
    """Measure all policies in turn. tell: is told what happens. Raises BenchError."""
    observed = {}
    for policy in options.policies:
        tell(f"{policy}: {options.duration_s:g} s")
        with tempfile.TemporaryDirectory(prefix="comfyserverless-bench-") as name:
            observed[policy] = _measure_one(options, policy, Path(name))
    facts = {
        "checkpoint": options.workload.checkpoint.name,
        "size_px": options.workload.size_px,
        "heavy": f"{HEAVY_IMAGES} x {options.workload.steps} steps",
        "light": f"1 x {LIGHT_STEPS} steps",
    }
    return FairnessResult(observed, options.slack_s, options.duration_s, is_simulated=False, facts=facts)


def _measure_one(options: FairnessOptions, policy: str, folder: Path) -> Observed:
    workload = options.workload
    checkpoints = folder / "models" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / workload.checkpoint.name).symlink_to(workload.checkpoint)
    tokens = {name: new_token() for name in (HEAVY, LIGHT, _OPERATOR)}
    flags = ["--tenants", str(_write_accounts(folder, tokens)), "--cache-none", "--drain-timeout", "0"]
    flags += ["--policy", policy, "--slack", str(options.slack_s)]
    with served(folder, flags, workload.threads, token=tokens[_OPERATOR]) as url:
        heavy = BusyTenant(url, tokens[HEAVY], workload, HEAVY_IMAGES)
        light = BusyTenant(url, tokens[LIGHT], replace(workload, steps=LIGHT_STEPS), 1)
        reader = StayReader(Caller(url, tokens[_OPERATOR]))
        for _ in range(_WARM_ROUNDS):
            for tenant in (heavy, light):
                _run_one(tenant)
        time.sleep(GRACE_S + _POLL_S)  # so both begin anew, and none owes the other what was before
        reader.read()
        begun_ms = _keep_busy((heavy, light), reader, options.duration_s)
        return _observed(reader.stays, {HEAVY: heavy, LIGHT: light}, begun_ms, options.duration_s)


def _write_accounts(folder: Path, tokens: dict[str, str]) -> Path:
    path = folder / "tenants.toml"
    path.write_text(
        "".join(
            f'[tenants.{name}]\ntoken_sha256 = ["{token_digest(token).hex()}"]\n'
            + ("operator = true\n" if name == _OPERATOR else "")
            for name, token in tokens.items()
        )
    )
    return path


def _run_one(tenant: BusyTenant) -> None:
    """Send one prompt and wait for its end. Raises BenchError if it fails."""
    prompt_id = tenant.send()
    deadline_s = time.monotonic() + _WARM_WITHIN_S
    while tenant.remaining():
        if time.monotonic() > deadline_s:
            raise BenchError(f"a prompt took longer than {_WARM_WITHIN_S:g} s")
        time.sleep(_POLL_S)
    if prompt_id not in {prompt.prompt_id for prompt in tenant.ended()}:
        raise BenchError(f"the server failed: {tenant.call(f'/history/{prompt_id}')}")


def _keep_busy(tenants: tuple[BusyTenant, BusyTenant], reader: StayReader, duration_s: float) -> int:
    """Let both have prompts waiting for some time; returns when that began, in Unix milliseconds."""
    for _ in range(_OUTSTANDING):
        for tenant in tenants:
            tenant.send()
    begun_ms, ends_s = round(time.time() * 1000), time.monotonic() + duration_s
    read_s = time.monotonic() + _READ_EVERY_S
    while (now_s := time.monotonic()) < ends_s:
        for tenant in tenants:
            tenant.fill(_OUTSTANDING)
        if now_s >= read_s:
            reader.read()
            read_s = now_s + _READ_EVERY_S
        time.sleep(_POLL_S)
    reader.read()
    return begun_ms


def _observed(
    stays: Sequence[Stay], tenants: dict[str, BusyTenant], begun_ms: int, duration_s: float
) -> Observed:
    ends_ms = begun_ms + duration_s * 1000
    services = [
        Service(stay.tenant, (stay.ended_ms - begun_ms) / 1000, stay.charged_s)
        for stay in stays
        if begun_ms <= stay.ended_ms <= ends_ms
    ]
    own_s: dict[str, float] = {}
    for stay in stays:
        own_s[stay.prompt_id] = own_s.get(stay.prompt_id, 0.0) + stay.charged_s
    waits_s = {
        name: [
            (prompt.ended_ms - prompt.created_ms) / 1000 - own_s.get(prompt.prompt_id, 0.0)
            for prompt in tenant.ended()
            if begun_ms <= prompt.ended_ms <= ends_ms
        ]
        for name, tenant in tenants.items()
    }
    return Observed(services, waits_s)
