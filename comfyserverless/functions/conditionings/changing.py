"""Mix, join and silence encoded prompts: cond [B, T, D], pooled [B, D] or None."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from comfyserverless.core.errors import PromptError
from comfyserverless.functions.host import HostFn


class CondAverage(HostFn):
    """Mix two encoded prompts."""

    name = "cond.average"
    takes = "to origin to_pooled origin_pooled strength"
    gives = "cond pooled"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return to * strength + origin * (1 - strength), token by token of `to`; the same of the pooled ones.

        An origin with fewer tokens counts as 0 beyond them. Without one of the pooled vectors, the other is
        the result.
        """
        to, strength = inputs["to"], inputs["strength"]
        _check_width(to, inputs["origin"])
        origin = inputs["origin"][:, : to.shape[1]]
        origin = functional.pad(origin, (0, 0, 0, to.shape[1] - origin.shape[1]))
        pooled, other = inputs["to_pooled"], inputs["origin_pooled"]
        if pooled is not None and other is not None:
            pooled = pooled * strength + other * (1.0 - strength)
        return {
            "cond": to * strength + origin * (1.0 - strength),
            "pooled": other if pooled is None else pooled,
        }


class CondConcat(HostFn):
    """Put the tokens of two encoded prompts after each other."""

    name = "cond.concat"
    takes = "to origin"
    gives = "cond"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return [B, T + T', D]."""
        to, origin = inputs["to"], inputs["origin"]
        _check_width(to, origin)
        return {"cond": torch.cat([to, origin.expand(to.shape[0], -1, -1)], dim=1)}


class CondZero(HostFn):
    """Silence an encoded prompt."""

    name = "cond.zero"
    takes = "cond pooled"
    gives = "cond pooled"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Return zeros of the same shapes."""
        pooled: Tensor | None = inputs["pooled"]
        return {
            "cond": torch.zeros_like(inputs["cond"]),
            "pooled": None if pooled is None else torch.zeros_like(pooled),
        }


def _check_width(to: Tensor, origin: Tensor) -> None:
    if to.shape[-1] != origin.shape[-1]:
        raise PromptError(
            f"prompts encoded with {to.shape[-1]} and {origin.shape[-1]} features are of different models and"
            " cannot be combined"
        )
