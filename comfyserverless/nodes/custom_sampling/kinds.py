"""Define what flows between the nodes of custom sampling: small dicts that name their kind.

NOISE: {kind, seed}, seed None for no noise. SAMPLER: {kind, name, options}. GUIDER: {kind, model, positive,
negative, cfg, guide}. SIGMAS: a tensor [N] of levels.
"""

from __future__ import annotations

from collections.abc import Mapping

from comfyserverless.core.errors import PromptError
from comfyserverless.core.values import ModelRef, Value
from comfyserverless.nodes.taking import Conditioning, Inputs

_KIND = "kind"


def noise(seed: int | None) -> dict[str, Value]:
    """Return a NOISE of a seed, or none."""
    return {_KIND: "NOISE", "seed": seed}


def sampler(name: str, **options: Value) -> dict[str, Value]:
    """Return a SAMPLER of a name, with settings of its family."""
    return {_KIND: "SAMPLER", "name": name, "options": options}


def guider(
    model: ModelRef,
    positive: Conditioning,
    negative: Conditioning,
    cfg: float,
    guide: Mapping[str, Value] | None = None,
) -> dict[str, Value]:
    """Return a GUIDER; guide: {mode, middle, scale} where there is a third side."""
    return {
        _KIND: "GUIDER",
        "model": model,
        "positive": positive,
        "negative": negative,
        "cfg": cfg,
        "guide": guide,
    }


def take(inputs: Inputs, name: str, kind: str) -> Mapping[str, Value]:
    """Return an input of a kind. Raises PromptError naming the input and the kind for anything else."""
    value = inputs.get(name)
    if isinstance(value, Mapping) and value.get(_KIND) == kind:
        return value
    got = value.get(_KIND, "a dict") if isinstance(value, Mapping) else type(value).__name__
    raise PromptError(f"Input {name!r} takes a {kind}, but got {'nothing' if value is None else got}")
