"""Merge adapter files into the parameters of a model, in order, returning only what changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import torch
from torch import Tensor

from comfyserverless.core.values import LoraRef
from comfyserverless.models.lora.deltas import Delta
from comfyserverless.models.lora.files import read_deltas
from comfyserverless.models.reading.identity import opened

_logger = logging.getLogger(__name__)
_NAMED = 3


def merge_loras(
    loras: tuple[LoraRef, ...],
    parameters: Mapping[str, Tensor],
    layer_names: Mapping[str, str],
    prefixes: tuple[str, ...],
) -> dict[str, Tensor]:
    """Return the changed parameters; they have the type and device of the ones in `parameters`.

    layer_names: from a layer's name in adapter files to its own; prefixes: how names of this model start in
    such files, so that names meant for it but not known can be logged. Weights are merged in float32 over all
    files and rounded once. Raises ModelFileError for files that cannot be read.
    """
    merged: dict[str, Tensor] = {}
    for lora in loras:
        with opened(lora.file) as root:
            deltas, unknown = read_deltas(root)
        for (name, leaf), delta in deltas.items():
            target = f"{layer_names.get(name)}.{leaf}"
            if target in parameters:
                before = merged.get(target)
                weight = parameters[target].to(torch.float32) if before is None else before
                merged[target] = _merge_one(lora, name, delta, weight)
            elif name.startswith(prefixes):
                unknown.append(name)
        _log_unknown(lora, unknown)
    return {name: weight.to(parameters[name].dtype) for name, weight in merged.items()}


def _merge_one(lora: LoraRef, name: str, delta: Delta, weight: Tensor) -> Tensor:
    try:
        return delta.merge(weight, lora.strength)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, LookupError, ArithmeticError, ValueError) as exc:
        _logger.warning("%s: %s does not fit this model and is skipped: %s", lora.file.path, name, exc)
        return weight


def _log_unknown(lora: LoraRef, unknown: list[str]) -> None:
    if unknown:
        shown = ", ".join(unknown[:_NAMED])
        _logger.warning("%s: %d names are not known and are skipped: %s", lora.file.path, len(unknown), shown)
