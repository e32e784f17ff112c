"""How often packs can tell the same thing."""

from __future__ import annotations

import time

from comfyserverless.host.running.pacing import Budget


def test_burst_is_allowed_and_then_so_many_a_second() -> None:
    budget, now_s = Budget(), time.monotonic() + 100.0
    assert sum(budget.take(now_s) for _ in range(1_000)) == 200
    assert sum(budget.take(now_s + 1.0) for _ in range(1_000)) == 50
