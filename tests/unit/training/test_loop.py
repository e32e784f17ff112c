"""The loop: rates, resuming, averaged weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from comfyserverless.core.errors import ConfigError
from comfyserverless.training.crew import Crew
from comfyserverless.training.loop import Pace, Turn, rate_share, run_stage


class Fit:
    """Fit a matrix and a vector to noise that depends on the step only; may break off at a step."""

    name = "fit"

    def __init__(self, pace: Pace, break_at: int = -1) -> None:
        torch.manual_seed(0)
        self.pace = pace
        self.module = nn.Linear(4, 3)
        self.steps = 0
        self._break_at = break_at

    def loss(self, turn: Turn) -> Tensor:
        if round(turn.done * self.pace.steps) == self._break_at:
            raise KeyboardInterrupt
        self.steps += 1
        x = torch.randn(5, 4, generator=turn.own)
        return (self.module(x) - x[:, :3] * float(turn.shared.uniform(0.9, 1.1))).square().mean()

    def matrices(self) -> list[nn.Parameter]:
        return [self.module.weight]


PACE = Pace(50, 0.05, average=0.9, matrix_rate=0.05)


def state(stage: Fit) -> dict[str, Tensor]:
    return dict(stage.module.state_dict())


def test_a_stage_that_was_broken_off_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole, broken, resumed = Fit(PACE), Fit(PACE, break_at=31), Fit(PACE)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    run_stage(whole, Crew(), tmp_path / "a", seed=1)
    with pytest.raises(KeyboardInterrupt):
        run_stage(broken, Crew(), tmp_path / "b", seed=1)
    run_stage(resumed, Crew(), tmp_path / "b", seed=1)
    assert resumed.steps < whole.steps
    assert all(torch.equal(value, state(resumed)[name]) for name, value in state(whole).items())
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["fit.pt"]


def test_a_finished_stage_is_loaded_not_run(tmp_path: Path) -> None:
    first, second = Fit(PACE), Fit(PACE)
    for stage in (first, second):
        run_stage(stage, Crew(), tmp_path, seed=1)
    assert second.steps == 0
    assert torch.equal(first.module.weight, second.module.weight)


def test_another_seed_learns_from_other_examples(tmp_path: Path) -> None:
    weights = []
    for seed in (1, 2):
        (folder := tmp_path / str(seed)).mkdir()
        stage = Fit(replace(PACE, average=0.0))
        run_stage(stage, Crew(), folder, seed)
        weights.append(stage.module.weight)
    assert not torch.equal(*weights)
    assert (weights[0] - torch.eye(4)[:3]).abs().max() < 0.5


def test_the_rate_warms_up_and_ends_near_zero() -> None:
    assert rate_share(0.0) < 0.05
    assert rate_share(0.05) > 0.95
    assert rate_share(0.5) == pytest.approx(0.5, abs=0.02)
    assert rate_share(1.0) < 0.01


@pytest.mark.parametrize("name", ["fit.pt", "fit.state.pt"])
@pytest.mark.parametrize("content", ["", "junk", "junk\n", "cut", "other shape", "no mapping"])
def test_a_damaged_state_is_named(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    if content == "cut":
        torch.save(Fit(PACE).module.state_dict(), path)
        path.write_bytes(path.read_bytes()[:-100])
    elif content == "other shape":
        torch.save(nn.Linear(2, 2).state_dict(), path)
    elif content == "no mapping":
        torch.save(3, path)
    with pytest.raises(ConfigError, match=str(path)):
        run_stage(Fit(PACE), Crew(), tmp_path, seed=1)
