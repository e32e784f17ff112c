"""Gather what a pack changes in weights, and write it when the model is used: packs change them key by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from comfyserverless.core.values import LoraRef, ModelRef
from comfyserverless.host.layers.refusing import refuse
from comfyserverless.host.models.adapters import (
    NETWORK,
    LoadedPatches,
    as_changes,
    calculate_weight,
    load_lora,
    unet_key_map,
)
from comfyserverless.host.models.origins import FileDict
from comfyserverless.host.models.weights import all_weights
from comfyserverless.models.families.registry import find_network
from comfyserverless.models.reading.identity import opened


@dataclass(frozen=True, slots=True)
class WeightPatches:
    """One call of add_patches: weight * kept + patch * strength for every key."""

    patches: Mapping[Any, Any]
    strength: float
    kept: float


@dataclass(slots=True)
class _Group:
    """Patches that make one file."""

    strength: float
    patches: dict[Any, Any]


def settle(ref: ModelRef, pending: Sequence[WeightPatches]) -> tuple[LoraRef, ...]:
    """Return the changes of weights that calls of add_patches are, in their order.

    Raises NotSupportedError for a weight that is scaled after it was changed otherwise, and for unknown kinds.
    """
    groups: list[_Group] = []
    changes: list[LoraRef] = []
    for each in pending:
        if each.kept != 1.0:
            _check_first(ref, each, pending)
        elif isinstance(each.patches, LoadedPatches) and each.patches.is_untouched():
            changes += _written(ref, groups)
            groups = []
            changes += as_changes(ref, each.patches, each.strength)
            continue
        _join(groups, each if each.kept == 1.0 else _scaled(ref, each))
    return (*changes, *_written(ref, groups))


def _join(groups: list[_Group], each: WeightPatches) -> None:
    last = groups[-1] if groups else None
    if last is None or last.strength != each.strength or last.patches.keys() & each.patches.keys():
        last = _Group(each.strength, {})
        groups.append(last)
    last.patches.update({key: _plain(key, value) for key, value in each.patches.items()})


def _plain(key: Any, value: Any) -> Any:
    """Return a patch; a list that begins with a weight (of get_key_patches) is that weight, as it is to be."""
    if isinstance(value, list) and value and isinstance(value[0], tuple) and len(value[0]) == 2:
        weight, convert = value[0]
        if isinstance(weight, Tensor) and callable(convert):
            return (calculate_weight(value[1:], convert(weight, inplace=True), key),)
    return value


def _check_first(ref: ModelRef, each: WeightPatches, pending: Iterable[WeightPatches]) -> None:
    before = [one for one in pending if one is not each and one.patches.keys() & each.patches.keys()]
    if ref.loras or before:
        refuse("ModelPatcher.add_patches with a strength_model", "the weights were changed before")


def _scaled(ref: ModelRef, each: WeightPatches) -> WeightPatches:
    """Return the same change as differences of strength 1."""
    changed: dict[Any, Any] = {}
    with opened(ref.file) as root:
        network = find_network(root)
        for key, value in each.patches.items():
            (patch,) = _difference(key, _plain(key, value))
            weight = network.load(str(key).removeprefix(NETWORK)).float()
            changed[key] = (patch.float() * each.strength + weight * (each.kept - 1.0),)
    return WeightPatches(changed, 1.0, 1.0)


def _difference(key: Any, value: Any) -> tuple[Tensor]:
    if isinstance(value, tuple | list) and value and isinstance(value[0], str) and value[0] == "diff":
        value = value[1]
    if isinstance(value, tuple | list) and len(value) == 1 and isinstance(value[0], Tensor):
        return (value[0],)
    return refuse("ModelPatcher.add_patches with a strength_model", f"the patch of {key} is no difference")


def _written(ref: ModelRef, groups: Iterable[_Group]) -> list[LoraRef]:
    return [change for group in groups for change in as_changes(ref, group.patches, group.strength)]


def read_patches(ref: ModelRef) -> dict[str, list[Any]]:
    """Return the changes of a handle's weights by key, as (strength, adapter, 1.0, None, None) in their order.

    Raises NotSupportedError for merged models.
    """
    found: dict[str, list[Any]] = {}
    for change in ref.loras:
        if not isinstance(change, LoraRef):
            refuse("ModelPatcher.get_key_patches of a merged model")
        adapters = load_lora(FileDict(all_weights(change.file)).remember(change.file), unet_key_map(ref.file))
        for key, adapter in adapters.items():
            found.setdefault(key, []).append((change.strength, adapter, 1.0, None, None))
    return found
