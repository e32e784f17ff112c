"""Prove that the fairness measurement runs against a real server, and says what it promises to say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.process.test_bench import bench

pytestmark = pytest.mark.timeout(1800)


def test_two_uneven_tenants_share_a_worker_by_vtime_and_not_in_one_queue() -> None:
    for seconds in (8, 16, 32, 64):  # a busy or slow machine needs more of them to show what is so
        flags = ("--policy", "vtime", "--policy", "fifo", "--seconds", str(seconds), "--steps", "20")
        done = bench(*flags, measurement="fairness")
        last = json.loads(done.stdout.splitlines()[-1])
        assert (last["bench"], last["simulated"]) == ("fairness", False)
        assert last["light_p95_wait"].keys() == {"vtime", "fifo"}
        if done.returncode == 0 and is_shared_fairly(last):
            return
    raise AssertionError(done.stdout)


def is_shared_fairly(last: dict[str, Any]) -> bool:
    """Tell whether figures show that vTime kept its bound where one queue did not."""
    fair = last["policies"]["vtime"]
    return bool(
        last["max_service_difference"] <= last["bound"]
        and last["cheap_share_fifo"] < 0.25
        and fair["cheap_share"] > 2 * last["cheap_share_fifo"]
        and len(fair["course"]) > 20
    )


def test_simulated_measurement_says_so() -> None:
    done = bench("--simulated", "--seconds", "20", "--policy", "vtime", measurement="fairness")
    assert done.returncode == 0, done.stderr
    assert "SIMULATED" in done.stdout
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["simulated"], last["duration"], last["cheap_share_fifo"]) == (True, 20.0, None)
    assert last["max_service_difference"] <= last["bound"]


def test_wrong_time_is_named() -> None:
    done = bench("--seconds", "0", measurement="fairness")
    assert done.returncode == 2
    assert "--seconds must be more than 0" in done.stderr
