"""Read and write what changes weights (`comfy.lora`): files of adapters, grouped by the keys of a model."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from comfyserverless.core.values import ClipRef, FileRef, LoraRef, ModelRef
from comfyserverless.host.layers.refusing import refuse
from comfyserverless.host.models import scratch
from comfyserverless.host.models.facts import text_models, text_names
from comfyserverless.host.models.origins import file_of
from comfyserverless.models.families.registry import find_network
from comfyserverless.models.lora.files import find_adapters
from comfyserverless.models.lora.keys import clip_layer_names, unet_layer_names
from comfyserverless.models.lora.kinds import make_delta
from comfyserverless.models.reading.identity import opened
from comfyserverless.models.unet_layout import read_layout, unet_names

NETWORK = "diffusion_model."
_WEIGHT = ".weight"
_DIFFERENCES = {"weight": ".diff", "bias": ".diff_b"}
_LORA_ROLES = (".lora_up.weight", ".lora_down.weight", ".alpha", ".lora_mid.weight", ".dora_scale")


@dataclass(frozen=True, slots=True)
class Adapter:
    """What one file adds to one weight: its tensors by suffix (`.lora_up.weight` ...)."""

    name: str
    tensors: Mapping[str, Tensor]
    leaf: str = "weight"

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """Return the tensors."""
        return tuple(self.tensors.values())


class LoadedPatches(dict[str, Any]):
    """Adapters by model key, that know the whole file that they were read from."""

    origin: FileRef | None = None
    _read: Mapping[str, int]

    def remember(self, origin: FileRef) -> LoadedPatches:
        """Say that these are all that a file has for a model; returns the dict itself."""
        self.origin, self._read = origin, {key: id(value) for key, value in self.items()}
        return self

    def is_untouched(self) -> bool:
        """Tell whether nothing was changed since."""
        return self.origin is not None and self._read == {key: id(value) for key, value in self.items()}


def unet_key_map(file: FileRef) -> dict[str, str]:
    """Map the names that adapter files use for layers of a network to keys of the model."""
    with opened(file) as root:
        network = find_network(root)
        names = unet_names(read_layout(network), network)
    to_original = {new.removesuffix(_WEIGHT): old for old, new in names.items() if new.endswith(_WEIGHT)}
    return {spelled: NETWORK + to_original[layer] for spelled, layer in unet_layer_names(names).items()}


def clip_key_map(ref: ClipRef) -> dict[str, str]:
    """Map the names that adapter files use for layers of text models to keys of the encoder."""
    is_pair = len(text_models(ref)) > 1
    found: dict[str, str] = {}
    for kind, names in text_names(ref).items():
        for spelled, layer in clip_layer_names(kind, is_pair, names).items():
            found[spelled] = f"{clip_key_prefix(kind)}{layer}{_WEIGHT}"
    return found


def clip_key_prefix(kind: str) -> str:
    """Return how keys of a text model begin."""
    return f"clip_{kind}.transformer.text_model."


def load_lora(lora: Mapping[str, Any], to_load: Mapping[str, Any], log_missing: bool = True) -> LoadedPatches:
    """Group a state dict of adapters by the keys of a model; to_load: from layer names in it to keys."""
    adapters, _ = find_adapters(lora)
    found: dict[str, Any] = {}
    for (layer, leaf), names in adapters.items():
        key = to_load.get(layer)
        if key is None:
            continue
        if leaf == "bias":
            key = str(key).removesuffix(_WEIGHT) + ".bias"
        tensors = {name.removeprefix(layer): lora[name] for name in names.roles.values()}
        found[key] = Adapter(layer, tensors, leaf)
    return LoadedPatches(found).remember(file_of(lora))


def as_changes(ref: ModelRef | ClipRef, patches: Mapping[Any, Any], strength: float) -> tuple[LoraRef, ...]:
    """Return the change of weights that patches of a model are: a file in the layout of adapters.

    Raises NotSupportedError for kinds of patches that no such file can hold.
    """
    if not patches:
        return ()
    if isinstance(patches, LoadedPatches) and patches.is_untouched() and patches.origin is not None:
        return (LoraRef(patches.origin, float(strength)),)
    entries = [_entries(_layer_name(ref, key), key, value) for key, value in patches.items()]
    tensors = dict(itertools.chain.from_iterable(each.items() for each in entries))
    return (LoraRef(scratch.keep_tensors(tensors), float(strength)),)


def _layer_name(ref: ModelRef | ClipRef, key: Any) -> str:
    """Return the name under which adapter files know a key's layer."""
    if not isinstance(key, str):
        refuse("add_patches for a part of a weight", f"key {key!r}")
    layer = key.rpartition(".")[0]
    if isinstance(ref, ModelRef):
        return layer
    kind, _, inner = layer.partition(".transformer.text_model.")
    is_second = len(text_models(ref)) > 1 and kind != "clip_l"
    inner = inner if inner == "text_projection" else f"text_model.{inner}"
    return f"{'lora_te2_' if is_second else 'lora_te1_'}{inner.replace('.', '_')}"


def _entries(layer: str, key: str, value: Any) -> dict[str, Tensor]:
    """Return one patch as tensors of an adapter file."""
    leaf = key.rpartition(".")[2]
    if isinstance(value, Adapter):
        return {layer + suffix: tensor for suffix, tensor in value.tensors.items()}
    if isinstance(value, Tensor):
        value = (value,)
    if not isinstance(value, tuple | list) or not value:
        refuse("add_patches", f"the patch of {key} is a {type(value).__name__}")
    kind, content = ("diff", value) if isinstance(value[0], Tensor) else (value[0], value[1])
    if kind == "diff" and leaf in _DIFFERENCES:
        return {layer + _DIFFERENCES[leaf]: content[0]}
    if kind == "lora" and leaf == "weight":
        given = zip(_LORA_ROLES, content, strict=False)
        return {layer + role: _as_tensor(item) for role, item in given if item is not None}
    return refuse("add_patches", f"the patch of {key} is of kind {kind!r}")


def _as_tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else Tensor([float(value)]).reshape(())


def model_lora_keys_unet(model: Any, key_map: dict[str, Any] | None = None) -> dict[str, Any]:
    """Fill a map from the names that adapter files use for layers of a model (`BaseModel`) to its keys."""
    found = {} if key_map is None else key_map
    found |= unet_key_map(model.file)
    return found


def model_lora_keys_clip(model: Any, key_map: dict[str, Any] | None = None) -> dict[str, Any]:
    """Fill a map for the text models of a CLIP (`cond_stage_model`)."""
    found = {} if key_map is None else key_map
    found |= clip_key_map(model.ref)
    return found


def calculate_weight(
    patches: Sequence[Any],
    weight: Tensor,
    key: str,
    intermediate_dtype: torch.dtype = torch.float32,
    **more: Any,
) -> Tensor:
    """Return a weight with patches (strength, patch, strength of the weight ...) made, in its own type."""
    changed = weight.to(intermediate_dtype)
    for strength, value, strength_model, *_ in patches:
        changed = changed * strength_model
        delta = make_delta(_factors(key, value))
        if delta is None:
            refuse("comfy.lora.calculate_weight", f"the patch of {key} is of an unknown kind")
        changed = delta.merge(changed, float(strength))
    return changed.to(weight.dtype)


def _factors(key: str, value: Any) -> dict[str, Tensor]:
    entries = _entries("layer", key, value)
    found = find_adapters(entries)[0]
    roles = next(iter(found.values())).roles if found else {}
    return {role: entries[name].float() for role, name in roles.items()}
