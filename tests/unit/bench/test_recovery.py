"""Check the figures of the recovery measurement."""

from __future__ import annotations

from pathlib import Path

from comfyserverless.bench.recovery import NoisyWorkload, Outcome, RecoveryOptions, summary

OPTIONS = RecoveryOptions("model.safetensors", "net.safetensors", kills=3)
COUNTS = {"checkpoint_steps": 4, "checkpoints": 0}


def test_summary_tells_the_most_steps_that_one_kill_cost() -> None:
    outcome = Outcome(1.0, completed=3, identical=2, struck=2, steps_recomputed=[0, 3, 1], restored=1)
    figures = summary(OPTIONS, outcome, COUNTS, [1.0, 3.0, 2.0])
    assert (figures["kills"], figures["completed"], figures["identical"]) == (3, 3, 2)
    assert (figures["most_steps_recomputed"], figures["k"]) == (3, 4)
    assert (figures["kills_while_made"], figures["restored"], figures["picture_s"]) == (2, 1, 2.0)


def test_workload_shows_each_step_and_goes_through_a_control_net_if_there_is_one() -> None:
    for nets in (0, 1):
        graph = NoisyWorkload(Path("m"), 5, 64, 1, Path("net.safetensors"), nets).prompt(3)
        sampler = graph["5"]["inputs"]
        assert sampler["sampler_name"] == "euler_ancestral"
        assert (sampler["positive"] == ["2", 0]) == (nets == 0)
