"""Estimate seconds from measured history: a running mean per cost key, then per function, then a default.

Making weights ready is estimated apart from the run, per weights key: it is paid only where they are missing,
and one cold start must not make every later step look slow. Load time of a call whose weights were thought to
be in place counts as part of the run: a worker that thrashes is slow there, and should look so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from comfyserverless.core.messages import Timing
from comfyserverless.scheduling.config import SchedulingConfig
from comfyserverless.scheduling.events import InvocationSpec

HISTORY_LIMIT = 4096
"""How many keys each history holds; the one not measured for longest goes first."""

CHECKPOINT_RATIO = 0.01
"""Share of a walk's time that checkpoints may take."""

MOST_CHECKPOINT_STEPS = 32
"""Checkpoints are never rarer: one that was slow by chance must be found out."""


class MeanHistory:
    """Keep exponentially weighted means by key, in the order of their last measurement."""

    def __init__(self, ratio: float, limit: int = HISTORY_LIMIT) -> None:
        self._ratio = ratio
        self._limit = limit
        self._means_s: dict[str, float] = {}

    def get(self, key: str) -> float | None:
        """Return the mean in seconds, None for a key without history."""
        return self._means_s.get(key)

    def observe(self, key: str, measured_s: float) -> None:
        """Mix one measurement in; the first one is taken as it is."""
        mean_s = self._means_s.pop(key, None)
        self._means_s[key] = measured_s if mean_s is None else mean_s + self._ratio * (measured_s - mean_s)
        if len(self._means_s) > self._limit:
            del self._means_s[next(iter(self._means_s))]

    def __len__(self) -> int:
        return len(self._means_s)


class Estimates:
    """Answer what a call will cost, in seconds of its lane."""

    def __init__(self, config: SchedulingConfig) -> None:
        self._default_cost_s = config.default_cost_s
        self._default_load_s = config.default_load_s
        self._by_cost_key = MeanHistory(config.ewma_ratio)
        self._by_function = MeanHistory(config.ewma_ratio)
        self._load_by_weights = MeanHistory(config.ewma_ratio)
        self._checkpoint_by_cost_key = MeanHistory(config.ewma_ratio)

    def run_s(self, spec: InvocationSpec) -> float:
        """Estimate compute and transfer of one call."""
        estimate_s = self._by_cost_key.get(spec.cost_key)
        if estimate_s is None:
            estimate_s = self._by_function.get(spec.function)
        return self._default_cost_s if estimate_s is None else estimate_s

    def load_s(self, weights: Iterable[str]) -> float:
        """Estimate how long it takes to make these weights ready on a worker that lacks them."""
        total_s = 0.0
        for key in weights:
            load_s = self._load_by_weights.get(key)
            total_s += self._default_load_s if load_s is None else load_s
        return total_s

    def checkpoint_steps(self, spec: InvocationSpec) -> int:
        """Return after how many steps a checkpoint is worth its time; the first one is for the measuring."""
        checkpoint_s = self._checkpoint_by_cost_key.get(spec.cost_key)
        step_s = self._by_cost_key.get(spec.cost_key)
        if checkpoint_s is None or not step_s:
            return 1
        steps = math.ceil(checkpoint_s / (CHECKPOINT_RATIO * step_s))
        return min(max(1, steps), MOST_CHECKPOINT_STEPS)

    def observe(
        self,
        spec: InvocationSpec,
        timing: Timing,
        missing: Sequence[str],
        checkpoint_s: float | None = None,
    ) -> None:
        """Learn from a finished call; missing: the weights that were thought absent when it was placed."""
        run_s = timing.compute_s + timing.transfer_s
        if checkpoint_s is not None:
            run_s = max(0.0, run_s - checkpoint_s)
            self._checkpoint_by_cost_key.observe(spec.cost_key, checkpoint_s)
        if missing:
            for key in missing:
                self._load_by_weights.observe(key, timing.load_s / len(missing))
        else:
            run_s += timing.load_s
        self._by_cost_key.observe(spec.cost_key, run_s)
        self._by_function.observe(spec.function, run_s)
