"""Prove that the fairness measurement runs against a real server, and says what it promises to say."""

from __future__ import annotations

import json

from tests.process.test_bench import bench


def test_two_uneven_tenants_share_a_worker_by_vtime_and_not_in_one_queue() -> None:
    flags = ("--policy", "vtime", "--policy", "fifo", "--seconds", "8", "--steps", "20")
    done = bench(*flags, measurement="fairness")
    last = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout
    assert (last["bench"], last["simulated"]) == ("fairness", False)
    assert last["max_service_difference"] <= last["bound"]
    assert last["cheap_share_fifo"] < 0.25
    assert last["policies"]["vtime"]["cheap_share"] > 2 * last["cheap_share_fifo"]
    assert last["light_p95_wait"].keys() == {"vtime", "fifo"}
    assert len(last["policies"]["vtime"]["course"]) > 20


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
