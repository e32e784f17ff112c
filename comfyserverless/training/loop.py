"""Run one stage of training: steps, learning rate, averaged weights, saved states.

A step depends on its number, the seed and the process only, so a stage that was ended goes on as if it had
not been.
"""

from __future__ import annotations

import copy
import math
import os
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from comfyserverless.core.errors import ConfigError
from comfyserverless.training.crew import Crew
from comfyserverless.training.muon import Muon

_WARM_SHARE = 0.03
_LEAST_RATE_SHARE = 0.005
_CLIP_NORM = 1.0
_SMOOTHING = 0.98
_SAVES = 25
_UNREADABLE = (
    OSError,
    EOFError,
    RuntimeError,
    pickle.UnpicklingError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
)
"""What torch raises for a file that is cut short, of another kind, or of networks of another shape."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long and how fast a stage learns.

    peak_rate: of AdamW, for all parameters but the stage's matrices, which learn with Muon at matrix_rate;
    average: decay of the running mean of the weights per step, 0 for none.
    """

    steps: int
    peak_rate: float
    average: float = 0.0
    weight_decay: float = 0.01
    matrix_rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One step: chance of this process, chance that all share, and how much of the stage is over (0..1)."""

    own: torch.Generator
    shared: np.random.Generator
    done: float


class Stage(Protocol):
    """What is learnt in one stage."""

    name: str
    pace: Pace

    @property
    def module(self) -> nn.Module:
        """Return all networks of the stage, those that stand still included."""
        ...

    def loss(self, turn: Turn) -> Tensor:
        """Return the loss of one batch."""
        ...

    def matrices(self) -> list[nn.Parameter]:
        """Return the parameters of at least two dimensions that learn with Muon."""
        ...


def rate_share(done: float) -> float:
    """Return the share of the peak rate after a part `done` of the steps: a short warm-up, then a cosine."""
    warm = min(1.0, done / _WARM_SHARE + 0.02)
    return warm * (0.5 + 0.5 * math.cos(math.pi * done) + _LEAST_RATE_SHARE)


def run_stage(stage: Stage, crew: Crew, folder: Path, seed: int) -> None:
    """Train until the stage is over, and load its averaged weights into `stage.module`.

    Writes `<name>.pt` into the folder in the end, and `<name>.state.pt` on the way, from which a later call
    goes on. A stage that has its file is not run again.
    """
    if load_finished(stage.module, stage.name, folder):
        return
    crew.share_start(stage.module)
    learner = _Learner(stage, crew, folder / f"{stage.name}.state.pt")
    learner.train(seed)
    stage.module.load_state_dict(learner.average.state_dict())
    if crew.is_first:
        save(stage.module.state_dict(), folder / f"{stage.name}.pt")
        learner.state_file.unlink(missing_ok=True)
    crew.wait()


def load_finished(module: nn.Module, name: str, folder: Path) -> bool:
    """Load what an earlier call has learnt in the stage `name`; tells whether there was anything."""
    path = folder / f"{name}.pt"
    if not path.exists():
        return False
    try:
        module.load_state_dict(_read(path))
    except _UNREADABLE as exc:
        raise _unreadable(path) from exc
    return True


def _read(path: Path) -> Any:
    """Load what `save` wrote: a zip archive; for other content torch guesses, and raises just anything."""
    if not zipfile.is_zipfile(path):
        raise ValueError("not an archive")
    return torch.load(path)


def _unreadable(path: Path) -> ConfigError:
    return ConfigError(f"{path}: damaged, or not a state of this training; remove it to train its stage anew")


class _Learner:
    """A stage under way."""

    def __init__(self, stage: Stage, crew: Crew, state_file: Path) -> None:
        self._stage, self._crew, self.state_file = stage, crew, state_file
        self._parameters = [parameter for parameter in stage.module.parameters() if parameter.requires_grad]
        self._optimizers = _optimizers(stage, self._parameters)
        self.average = copy.deepcopy(stage.module).requires_grad_(False)
        self._step = 0
        if state_file.exists():
            try:
                self._load(_read(state_file))
            except _UNREADABLE as exc:
                raise _unreadable(state_file) from exc

    def train(self, seed: int) -> None:
        pace, crew = self._stage.pace, self._crew
        every = max(1, pace.steps // _SAVES)
        smooth = 0.0
        bar = tqdm(
            total=pace.steps,
            initial=self._step,
            desc=self._stage.name,
            disable=not crew.is_first,
            mininterval=2,
        )
        while self._step < pace.steps:
            loss = self._learn(_turn(self._step, seed, crew, pace))
            smooth = loss if not smooth else _SMOOTHING * smooth + (1 - _SMOOTHING) * loss
            self._step += 1
            bar.set_postfix(loss=f"{smooth:.4f}", refresh=False)
            bar.update()
            if self._step % every == 0 and crew.is_first:
                save(self._state(), self.state_file)
        bar.close()

    def _learn(self, turn: Turn) -> float:
        pace = self._stage.pace
        loss = self._stage.loss(turn)
        for optimizer, peak in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
            for group in optimizer.param_groups:
                group["lr"] = peak * rate_share(turn.done)
        loss.backward()
        self._crew.average_gradients(self._parameters)
        torch.nn.utils.clip_grad_norm_(self._parameters, _CLIP_NORM)
        for optimizer, _ in self._optimizers:
            optimizer.step()
        decay = min(pace.average, (1 + self._step) / (10 + self._step))
        with torch.no_grad():
            means: list[Tensor] = list(self.average.parameters())
            torch._foreach_lerp_(means, list(self._stage.module.parameters()), 1 - decay)
        return float(loss.detach())

    def _state(self) -> dict[str, Any]:
        return {
            "step": self._step,
            "module": self._stage.module.state_dict(),
            "average": self.average.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer, _ in self._optimizers],
        }

    def _load(self, state: dict[str, Any]) -> None:
        self._step = state["step"]
        self._stage.module.load_state_dict(state["module"])
        self.average.load_state_dict(state["average"])
        for (optimizer, _), saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)


def _optimizers(stage: Stage, parameters: list[nn.Parameter]) -> list[tuple[torch.optim.Optimizer, float]]:
    """Return each optimizer with its peak rate."""
    pace, matrices = stage.pace, stage.matrices()
    chosen = {id(parameter) for parameter in matrices}
    others = [parameter for parameter in parameters if id(parameter) not in chosen]
    plain = torch.optim.AdamW(others, betas=(0.9, 0.99), weight_decay=pace.weight_decay)
    return [
        (plain, pace.peak_rate),
        *([(Muon(matrices, pace.matrix_rate), pace.matrix_rate)] if matrices else []),
    ]


def _turn(step: int, seed: int, crew: Crew, pace: Pace) -> Turn:
    own = torch.Generator().manual_seed((seed * 1009 + step) * 64 + crew.rank)
    return Turn(own, np.random.default_rng((seed, step)), step / pace.steps)


def save(state: dict[str, Any], path: Path) -> None:
    """Write a file whole or not at all."""
    staging = path.with_name(path.name + ".tmp")
    torch.save(state, staging)
    os.replace(staging, path)
