"""Turn CONDITIONING lists into the dicts that guiders work with, and back into what nodes take."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from comfyserverless.host.sampling.inputs import CONDCrossAttn

_MADE_HERE = ("cross_attn", "model_conds", "uuid", "default")


def convert_cond(cond: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return a conditioning as dicts with `cross_attn`, `model_conds` and `uuid` beside its options."""
    converted: list[dict[str, Any]] = []
    for tensor, options in cond:
        made = {**options, "model_conds": dict(options.get("model_conds", {})), "uuid": uuid.uuid4()}
        if tensor is not None:
            made["model_conds"]["c_crossattn"] = CONDCrossAttn(tensor)
            made["cross_attn"] = tensor
        converted.append(made)
    return converted


def to_conditioning(conds: Sequence[Any] | None) -> list[list[Any]]:
    """Return dicts of a guider as [tensor, options] pairs again; what a pack changed in them counts."""
    return [_pair(each) if isinstance(each, Mapping) else list(each) for each in conds or ()]


def _pair(cond: Mapping[str, Any]) -> list[Any]:
    options = {name: value for name, value in cond.items() if name not in _MADE_HERE}
    given = cond.get("model_conds", {}).get("c_crossattn")
    tensor: Tensor | None = cond.get("cross_attn") if given is None else given.cond
    if tensor is None:
        raise ValueError(
            "a conditioning without hidden states (cross_attn) cannot guide the models of this server"
        )
    return [tensor, options]


def add_values(conds: Sequence[Any], values: Mapping[str, Any]) -> list[Any]:
    """Return a conditioning with values set in the options of each entry."""
    return [[tensor, {**options, **values}] for tensor, options in conds]


def get_models_from_cond(cond: Sequence[Mapping[str, Any]], model_type: str) -> list[Any]:
    """List what entries hold under a key."""
    return [entry[model_type] for entry in cond if model_type in entry]
