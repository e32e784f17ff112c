"""Find what adapter files change in a model, and merge it, in order, one parameter at a time."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from comfyserverless.core.values import LoraRef
from comfyserverless.models.lora.files import AdapterNames, find_adapters
from comfyserverless.models.lora.mixing import Change
from comfyserverless.models.reading.identity import opened
from comfyserverless.models.reading.weights import Weights

_logger = logging.getLogger(__name__)
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Adapter:
    """What one file, at one strength, adds to one parameter; layer: its layer's name in the file."""

    lora: LoraRef
    layer: str
    names: AdapterNames
    weights: Weights

    def add_to(self, weight: Tensor) -> Tensor:
        """Return a float32 weight with the adapter added; one that does not fit is logged, and changes nothing.

        Raises ModelFileError if the file cannot be read, or is another one by now.
        """
        delta = self.names.read(self.weights)
        try:
            return delta.merge(weight, self.lora.strength)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, LookupError, ArithmeticError, ValueError) as exc:
            path = self.lora.file.path
            _logger.warning("%s: %s does not fit this model and is skipped: %s", path, self.layer, exc)
            return weight


def plan_loras(
    loras: tuple[LoraRef, ...],
    parameters: Container[str],
    layer_names: Mapping[str, str],
    prefixes: tuple[str, ...],
) -> dict[str, list[Adapter]]:
    """Return the adapters of each parameter that files change, in their order; reads headers only.

    layer_names: from a layer's name in adapter files to its own; prefixes: how names of this model start in
    such files, so that names meant for it but not known can be logged. Raises ModelFileError for files that
    cannot be read.
    """
    planned: dict[str, list[Adapter]] = {}
    for lora in loras:
        with opened(lora.file) as root:
            found, unknown = find_adapters(root)
        for (name, leaf), names in found.items():
            target = f"{layer_names.get(name)}.{leaf}"
            if target in parameters:
                planned.setdefault(target, []).append(Adapter(lora, name, names, root))
            elif name.startswith(prefixes):
                unknown.append(name)
        _log_unknown(lora, unknown)
    return planned


def merge(parameter: Tensor, changes: Sequence[Change]) -> Tensor:
    """Return a parameter with changes made, in its type; in float32 over all files, rounded once."""
    weight = parameter.detach().to(torch.float32)
    for change in changes:
        weight = change.add_to(weight)
    return weight.to(parameter.dtype)


def _log_unknown(lora: LoraRef, unknown: list[str]) -> None:
    if unknown:
        shown = ", ".join(unknown[:_NAMED])
        _logger.warning("%s: %d names are not known and are skipped: %s", lora.file.path, len(unknown), shown)
