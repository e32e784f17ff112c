"""Stand for a MODEL (`comfy.model_patcher.ModelPatcher`): an immutable handle, and what a pack adds to it.

A clone is cheap. When the value leaves the pack, or samples, it becomes a handle again (`to_ref`): options and
objects go into a file, changes of weights into the list of LoRAs. A pack may also make a patcher of a module of
its own; that one has no handle and stays in this process.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor

from comfyserverless.core import values
from comfyserverless.core.values import PYTHON_PATCH, LoraRef, ModelRef, Patch
from comfyserverless.host.layers.refusing import refuse
from comfyserverless.host.models.adapters import NETWORK
from comfyserverless.host.models.extension import CallbacksMP, merge_nested_dicts
from comfyserverless.host.models.facts import network_names
from comfyserverless.host.models.freezing import freeze, thaw
from comfyserverless.host.models.network import BaseModel, base_model
from comfyserverless.host.models.options import OptionSetters, copy_options, new_options
from comfyserverless.host.models.patched import patched_object
from comfyserverless.host.models.pending import WeightPatches, read_patches, settle
from comfyserverless.host.models.stores import Stores
from comfyserverless.host.models.weights import network_weights

_CPU = torch.device("cpu")


class ModelPatcher(OptionSetters, Stores):
    """A model with what a pack adds; `model` is shared by all clones."""

    def __init__(
        self, model: Any, load_device: Any = _CPU, offload_device: Any = _CPU, size: int = 0, **more: Any
    ) -> None:
        super().__init__()
        self.model = model
        self.ref: ModelRef | None = ModelRef(model.file) if isinstance(model, BaseModel) else None
        self.load_device, self.offload_device, self.size = load_device, offload_device, size
        self.model_options: dict[str, Any] = new_options()
        self.object_patches: dict[str, Any] = {}
        self.patches: dict[Any, list[Any]] = {}
        self.parent: ModelPatcher | None = None
        self.patches_uuid = uuid.uuid4()
        self._pending: list[WeightPatches] = []
        self._frozen: tuple[tuple[Any, ...], Patch | None] = ((), None)

    @classmethod
    def of(cls, ref: ModelRef) -> ModelPatcher:
        """Return the object for a handle; what a pack put into the model is there again."""
        made = cls(base_model(ref.file))
        python = [patch for patch in ref.patches if patch.name == PYTHON_PATCH]
        made.ref = msgspec.structs.replace(
            ref, patches=tuple(patch for patch in ref.patches if patch.name != PYTHON_PATCH)
        )
        if python:
            options, made.object_patches = thaw(python[-1])
            made.model_options = {**new_options(), **options}
            made._frozen = (made._signature(), python[-1])
        return made

    def to_ref(self) -> ModelRef | None:
        """Return the handle; None if this is a module of a pack's own.

        Raises NotSupportedError naming what cannot travel to the workers.
        """
        return None if self.ref is None else self.ref_with(self.model_options)

    def ref_with(self, model_options: Mapping[str, Any]) -> ModelRef:
        """Return the handle with other options than its own; wrappers and callbacks are added to them."""
        return self.ref_exactly_with(self.options_to_send(model_options))

    def ref_exactly_with(self, model_options: Mapping[str, Any]) -> ModelRef:
        """Return the handle with just these options."""
        if self.ref is None:
            return refuse("sampling", f"{type(self.model).__name__} is no model of this server")
        if self.get_injections_all():
            refuse("ModelPatcher.set_injections", "the network that they would change is on the workers")
        ref, patch = self.settled(self.ref), self._freeze(model_options)
        return ref if patch is None else msgspec.structs.replace(ref, patches=(*ref.patches, patch))

    def settled(self, ref: ModelRef) -> ModelRef:
        """Return the handle with all changes of weights, which are written now."""
        if self._pending:
            ref = msgspec.structs.replace(ref, loras=(*ref.loras, *settle(ref, self._pending)))
            self.ref, self._pending = ref, []
        return ref

    def add_adapter(self, lora: LoraRef) -> None:
        """Change weights by the adapters of a file."""
        if self.ref is not None:
            ref = self.settled(self.ref)
            self.ref = msgspec.structs.replace(ref, loras=(*ref.loras, lora))

    def _freeze(self, model_options: Mapping[str, Any]) -> Patch | None:
        signature = (*_leaves(model_options), *_leaves(self.object_patches))
        before = self._frozen[0]
        if len(before) != len(signature) or any(a is not b for a, b in zip(before, signature, strict=True)):
            self._frozen = (signature, freeze(model_options, self.object_patches))
        return self._frozen[1]

    def _signature(self) -> tuple[Any, ...]:
        return (*_leaves(self.options_to_send(self.model_options)), *_leaves(self.object_patches))

    def options_to_send(self, model_options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options with the wrappers and callbacks where evaluations look for them."""
        stored = {
            name: {kind: by_key for kind, by_key in store.items() if by_key}
            for name, store in (("wrappers", self.wrappers), ("callbacks", self.callbacks))
        }
        inner = merge_nested_dicts(
            dict(model_options.get("transformer_options") or {}), {k: v for k, v in stored.items() if v}
        )
        return {**model_options, "transformer_options": inner}

    def get_injections_all(self) -> list[Any]:
        """Return the injections of all keys."""
        return [each for injections in self.injections.values() for each in injections]

    def clone(self) -> ModelPatcher:
        """Return a copy that can be changed on its own."""
        made = type(self)(self.model, self.load_device, self.offload_device, self.size)
        made.ref, made.parent, made._pending = self.ref, self, list(self._pending)
        made.model_options = copy_options(self.model_options)
        made.object_patches = dict(self.object_patches)
        made.patches = {key: list(patches) for key, patches in self.patches.items()}
        made.patches_uuid, made._frozen = self.patches_uuid, self._frozen
        made.copy_stores(self)
        for callback in self.get_all_callbacks(CallbacksMP.ON_CLONE):
            callback(self, made)
        return made

    def is_clone(self, other: Any) -> bool:
        """Tell whether another one shares this model."""
        return getattr(other, "model", None) is self.model

    def clone_has_same_weights(self, clone: ModelPatcher) -> bool:
        """Tell whether another one has the same changes of weights."""
        if self.ref is None or clone.ref is None:
            return self.is_clone(clone)
        return self.is_clone(clone) and self.settled(self.ref) == clone.settled(clone.ref)

    def add_object_patch(self, name: str, obj: Any) -> None:
        """Put an object in the place of one of the model's."""
        self.object_patches[name] = obj

    def get_model_object(self, name: str) -> Any:
        """Return a part of the model by dotted name, with what was put in its place."""
        if name in self.object_patches:
            return self.object_patches[name]
        if self.ref is not None:
            own = patched_object(self.ref, name)
            if own is not None:
                return own
        found = self.model
        for part in name.split("."):
            found = found[int(part)] if part.isdigit() and not hasattr(found, part) else getattr(found, part)
        return found

    @property
    def model_sampling(self) -> Any:
        """Return the noise process."""
        return self.get_model_object("model_sampling")

    def add_patches(
        self, patches: Mapping[Any, Any], strength_patch: float = 1.0, strength_model: float = 1.0
    ) -> list[Any]:
        """Change weights: weight * strength_model + patch * strength_patch; returns the keys that are known."""
        if self.ref is None:
            return refuse("ModelPatcher.add_patches", "for a module of a pack's own")
        known = set(self.model_state_keys())
        accepted = {
            key: value for key, value in patches.items() if (key if isinstance(key, str) else key[0]) in known
        }
        whole = patches if len(accepted) == len(patches) else accepted
        if whole:
            self._pending.append(WeightPatches(whole, float(strength_patch), float(strength_model)))
        for key, value in accepted.items():
            self.patches.setdefault(key, []).append((strength_patch, value, strength_model, None, None))
        self.patches_uuid = uuid.uuid4()
        return list(accepted)

    def model_state_keys(self) -> list[str]:
        """List the names of the network's weights."""
        if self.ref is None:
            return list(self.model.state_dict())
        return [NETWORK + name for name in network_names(self.ref.file)]

    def model_state_dict(self, filter_prefix: str | None = None) -> dict[str, Tensor]:
        """Read the weights of the file, without changes."""
        if self.ref is None:
            weights = dict(self.model.state_dict())
            return {key: weight for key, weight in weights.items() if key.startswith(filter_prefix or "")}
        return network_weights(self.ref.file, NETWORK, filter_prefix or "")

    def get_key_patches(self, filter_prefix: str | None = None) -> dict[str, Any]:
        """Read the weights with the patches that are to change them, as lists that begin with the weight."""
        weights = self.model_state_dict(filter_prefix)
        patches = self.patches if self.ref is None else read_patches(self.settled(self.ref))
        return {key: [(weight, _unchanged), *patches.get(key, ())] for key, weight in weights.items()}

    def model_dtype(self) -> torch.dtype:
        """Return the type of latents that the model takes."""
        dtype: torch.dtype = self.model.get_dtype() if hasattr(self.model, "get_dtype") else torch.float32
        return dtype

    def model_size(self) -> int:
        """Return the bytes of the weights."""
        if self.ref is not None:
            return self.ref.file.size_bytes
        if not self.size:
            self.size = sum(t.numel() * t.element_size() for t in self.model.state_dict().values())
        return self.size

    def get_ram_usage(self) -> int:
        """Return the bytes of the weights."""
        return self.model_size()

    def loaded_size(self) -> int:
        """Return the bytes of what is loaded here: nothing of models that workers run."""
        return 0 if self.ref is not None else self.model_size()

    def memory_required(self, input_shape: Any) -> float:
        """Estimate the bytes of an evaluation."""
        return float(self.model.memory_required(input_shape=input_shape))

    def current_loaded_device(self) -> Any:
        """Return where the model is for whoever asks here."""
        return self.load_device

    def lowvram_patch_counter(self) -> int:
        """Return 0."""
        return 0

    def is_dynamic(self) -> bool:
        """Tell that weights are managed elsewhere."""
        return False

    def model_patches_models(self) -> list[Any]:
        """List models that the patches bring."""
        return []

    def model_patches_to(self, device: Any) -> None:
        """Move patches that can move (`to`) to a device or type."""
        options = self.model_options["transformer_options"]
        for patches in options.get("patches", {}).values():
            for index, patch in enumerate(patches):
                if hasattr(patch, "to"):
                    patches[index] = patch.to(device)

    def patch_model(self, device_to: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Load a module of a pack's own; models that workers run are loaded there."""
        if self.ref is None and device_to is not None:
            self.model.to(device_to)
        return self.model

    def unpatch_model(self, device_to: Any = None, unpatch_weights: bool = True) -> None:
        """Unload a module of a pack's own."""
        if self.ref is None and device_to is not None:
            self.model.to(device_to)

    def load(self, device_to: Any = None, *args: Any, **kwargs: Any) -> None:
        """Load a module of a pack's own."""
        self.patch_model(device_to)

    def partially_load(self, device_to: Any, *args: Any, **kwargs: Any) -> int:
        """Load a module of a pack's own; returns 0."""
        self.patch_model(device_to)
        return 0

    def partially_unload(self, device_to: Any, *args: Any, **kwargs: Any) -> int:
        """Unload nothing; returns 0."""
        return 0

    def detach(self, unpatch_all: bool = True) -> Any:
        """Unload a module of a pack's own."""
        self.unpatch_model(self.offload_device)
        return self.model

    def patch_weight_to_device(self, key: str, *args: Any, **kwargs: Any) -> None:
        """Refuse: weights are on the workers."""
        refuse("ModelPatcher.patch_weight_to_device", "the weights are on the workers")

    def pre_run(self) -> None:
        """Call what wants to be called before sampling."""
        for callback in self.get_all_callbacks(CallbacksMP.ON_PRE_RUN):
            callback(self)

    def prepare_state(self, timestep: Any, *args: Any) -> None:
        """Call what wants to be called before an evaluation."""
        for callback in self.get_all_callbacks(CallbacksMP.ON_PREPARE_STATE):
            callback(self, timestep)

    def cleanup(self) -> None:
        """Call what wants to be called after sampling."""
        for callback in self.get_all_callbacks(CallbacksMP.ON_CLEANUP):
            callback(self)

    def __reduce__(self) -> Any:
        ref = self.to_ref()
        if ref is None:
            return super().__reduce__()
        return _from_bytes, (values.encode(ref),)


class CoreModelPatcher(ModelPatcher):
    """The name of newer versions for models of the server itself."""


def _from_bytes(data: bytes) -> ModelPatcher:
    return ModelPatcher.of(values.decode(data))


def _unchanged(weight: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return weight


def _leaves(value: Any) -> list[Any]:
    """List keys and leaves of a tree, which two trees have in common if they hold the same objects."""
    if type(value) is dict:
        return [each for key, item in value.items() for each in (key, *_leaves(item))]
    return [each for item in value for each in _leaves(item)] if type(value) is list else [value]
